"""`nanwatch run SCRIPT [args…]`: the script as Python would run it, watched.

nanwatch run train.py --lr 1e-3
nanwatch run --dir runs/today --policy skip train.py
nanwatch run -m package.train
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from dataclasses import dataclass, field
from types import TracebackType

from nanwatch.cli.program import Program, find_module, find_script
from nanwatch.errors import EXIT_NON_FINITE, NanwatchError, NonFiniteError
from nanwatch.messages import say

HELP = """usage: nanwatch run [options] SCRIPT [args…]
       nanwatch run [options] -m MODULE [args…]

Options come before SCRIPT; what follows it belongs to the script.
  --dir DIR         the run folder (default: nanwatch-runs/<time>-<script>)
  --policy POLICY   raise: stop at the first bad step, exit code 3 (default)
                    skip: leave a bad step out and go on
                    observe: only report
  --mode MODE       host: one scalar read per step; device: no read, for fused optimizers;
                    auto: device where it can be (default)
  --audit-seconds S trace every op until tracing has cost S seconds (default 5)
  --audit-share F   afterwards trace a step now and then, within this share of the time (default 0.01)
  --help            this text

Exits with the script's own code, 3 if a non-finite value stopped it, 2 if it could not be run."""


@dataclass
class Options:
    dir: str | None = None
    policy: str = "raise"
    mode: str = "auto"
    audit_seconds: float | None = None
    audit_share: float | None = None
    module: str | None = None
    rest: list[str] = field(default_factory=list)


EXAMPLES = {
    "--dir": "--dir runs/today",
    "--policy": "--policy skip",
    "--mode": "--mode host",
    "--audit-seconds": "--audit-seconds 5",
    "--audit-share": "--audit-share 0.01",
    "-m": "-m package.train",
}


def main(arguments: list[str]) -> int:
    if arguments[:1] in (["-h"], ["--help"]):
        print(HELP)
        return 0
    options = parse(arguments)
    program = find_module(options.module, options.rest) if options.module else find_script(options.rest)
    return run_watched(program, options)


def parse(arguments: list[str]) -> Options:
    options = Options()
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        option, equals, value = rest.pop(0).partition("=")
        if option == "--":
            break
        if option not in EXAMPLES:
            raise NanwatchError(say("cli.unknown_option", option=option))
        if not equals:
            if not rest:
                raise NanwatchError(say("cli.option_needs_value", option=option, example=EXAMPLES[option]))
            value = rest.pop(0)
        _set(options, option, value)
        if option == "-m":
            break
    options.rest = rest
    return options


def _set(options: Options, option: str, value: str) -> None:
    from nanwatch.act.policy import check_policy

    if option == "--policy":
        options.policy = check_policy(value)
    elif option == "--mode":
        if value not in ("auto", "host", "device"):
            raise NanwatchError(say("watch.unknown_mode", mode=value, choices="auto, host, device"))
        options.mode = value
    elif option.startswith("--audit"):
        try:
            number = float(value)
        except ValueError:
            raise NanwatchError(
                say("cli.not_a_number", option=option, value=value, example=EXAMPLES[option])
            ) from None
        setattr(options, option.removeprefix("--").replace("-", "_"), number)
    elif option == "-m":
        options.module = value
    else:
        options.dir = value


def run_watched(program: Program, options: Options) -> int:
    from nanwatch.adapters.plain import Session
    from nanwatch.watching.stack import treat_as_user_code

    program.prepare()
    treat_as_user_code(program.folder)
    audit = {
        name: value
        for name, value in (("audit_seconds", options.audit_seconds), ("audit_share", options.audit_share))
        if value is not None
    }
    session = Session(
        options.policy,
        options.mode,
        options.dir,
        program.name,
        ("nanwatch", "run", *program.command),
        **audit,
    )
    try:
        program.run()
        session.close()
    except NonFiniteError as error:
        session.close()
        if not session.incidents:
            print(error, file=sys.stderr)
        return EXIT_NON_FINITE
    except SystemExit as error:
        session.close()
        return _exit_code(error)
    except KeyboardInterrupt as error:
        session.close()
        _show_traceback(error)
        _die_of_interrupt()
        return 130
    except BaseException as error:
        stopped = isinstance(error, Exception) and session.post_mortem(error)
        session.close()
        _show_traceback(error)
        return EXIT_NON_FINITE if stopped else 1
    return EXIT_NON_FINITE if session.stopped_by_incident else 0


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    print(error.code, file=sys.stderr)
    return 1


def _show_traceback(error: BaseException) -> None:
    """As Python shows it, without nanwatch's own frames."""
    from nanwatch.watching.stack import is_own

    shown: TracebackType | None = error.__traceback__
    while shown is not None and (
        is_own(shown.tb_frame.f_code.co_filename) or "runpy" in shown.tb_frame.f_code.co_filename
    ):
        shown = shown.tb_next
    if sys.excepthook is not sys.__excepthook__:
        sys.excepthook(type(error), error, shown)
        return
    traceback.print_exception(type(error), error, shown)


def _die_of_interrupt() -> None:
    """End as Python ends on Ctrl-C, so that the shell sees a death by SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
