"""`nanwatch COMMAND …`: one file per command; errors become exit codes here and nowhere else."""

from __future__ import annotations

import os
import sys

from nanwatch.cli import demo, explain, run, stable_config
from nanwatch.errors import NanwatchError
from nanwatch.messages import say
from nanwatch.version import __version__

COMMANDS = {"run": run, "explain": explain, "stable-config": stable_config, "demo": demo}

USAGE = """usage: nanwatch run [--dir DIR] [--policy raise|skip|rollback|survive|observe] SCRIPT [args…]
       nanwatch run [options] -m MODULE [args…]
       nanwatch explain [CAUSE | FOLDER]
       nanwatch stable-config --framework plain|accelerate|trainer|lightning [--output FILE]
       nanwatch demo [A-E] [--fault NAME] [--list]
       nanwatch --version

Runs an unmodified PyTorch program; when a step goes NaN or Inf, stops it before the weights are touched,
names the op, the line and the module where the value was born, and looks for its cause. `nanwatch run --help`
and `nanwatch explain --help` tell more."""


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = _dispatch(arguments)
        if arguments[:1] != ["run"]:
            sys.stdout.flush()
        sys.exit(code)
    except NanwatchError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # of our own output: `nanwatch explain … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python itself will flush it again
        sys.exit(1)


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        raise NanwatchError(say("cli.no_script"))
    first, rest = arguments[0], arguments[1:]
    if first in ("-h", "--help"):
        print(USAGE)
        return 0
    if first in ("-V", "--version"):
        print(f"nanwatch {__version__}")
        return 0
    if first not in COMMANDS:
        message = "cli.unknown_option" if first.startswith("-") else "cli.unknown_command"
        raise NanwatchError(say(message, option=first, command=first, choices=", ".join(COMMANDS)))
    code: int = COMMANDS[first].main(rest)
    return code
