"""`nanwatch stable-config`: the settings of a training that stays finite, as a Python file to start from.

nanwatch stable-config --framework plain --output stable.py
nanwatch stable-config --framework trainer --learning-rate 5e-5 --clip 0.5 --total-steps 20000
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanwatch.act.configurations import FRAMEWORKS, Wishes, configuration
from nanwatch.act.rate_curve import usual_warmup
from nanwatch.errors import NanwatchError
from nanwatch.messages import chosen_language, say
from nanwatch.messages.language import LANGUAGES

HELP = """usage: nanwatch stable-config --framework plain|accelerate|trainer|lightning [options]

Writes a Python file with the settings of a training that stays finite, each explained in a comment. It runs
as it is, on a small model; import it to train yours.
  --framework NAME     plain: a loop of your own; accelerate; trainer: that of transformers; lightning
  --output FILE        where to write (default: on the screen); never overwrites a file
  --learning-rate LR   the highest rate (default 5e-5)
  --clip NORM          the norm to clip gradients at (default 1.0)
  --total-steps N      optimizer steps in all (default 10000)
  --warmup-steps N     steps over which the rate rises (default: a tenth of all, at most 2000)
  --language en|zh     of the comments (default: that of the messages)
  --help               this text"""


@dataclass
class Options:
    framework: str | None = None
    output: str | None = None
    learning_rate: float = 5e-5
    clip: float = 1.0
    total_steps: int = 10000
    warmup_steps: int | None = None
    language: str | None = None


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options is None:
        print(HELP)
        return 0
    if options.framework is None:
        raise NanwatchError(say("cli.config.no_framework", choices=", ".join(FRAMEWORKS)))
    text = configuration(options.framework, options.language or chosen_language(), _wishes(options))
    if options.output is None:
        print(text, end="")
        return 0
    _write(options.output, text)
    print(say("cli.config.written", path=options.output))
    return 0


def parse(arguments: list[str]) -> Options | None:
    """None when help is asked for."""
    options = Options()
    rest = list(arguments)
    while rest:
        option, equals, value = rest.pop(0).partition("=")
        if option in ("-h", "--help"):
            return None
        if option not in READERS:
            raise NanwatchError(say("cli.config.unknown_option", option=option))
        read, example = READERS[option]
        if not equals:
            if not rest:
                raise NanwatchError(say("cli.option_needs_value", option=option, example=example))
            value = rest.pop(0)
        setattr(options, option.removeprefix("--").replace("-", "_"), read(option, value, example))
    return options


def _wishes(options: Options) -> Wishes:
    total, warmup = options.total_steps, options.warmup_steps
    warmup = usual_warmup(total) if warmup is None else warmup
    if warmup >= total:
        raise NanwatchError(say("cli.config.long_warmup", warmup=warmup, total=total))
    return Wishes(options.learning_rate, options.clip, total, warmup)


def _write(path: str, text: str) -> None:
    try:
        with Path(path).open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise NanwatchError(say("cli.config.exists", path=path)) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise NanwatchError(say("cli.config.unwritable", path=path, why=why)) from None


# What each option takes


def _text(option: str, value: str, example: str) -> str:
    if not value:
        raise NanwatchError(say("cli.option_needs_value", option=option, example=example))
    return value


def _one_of(choices: tuple[str, ...]) -> Callable[[str, str, str], str]:
    def read(option: str, value: str, example: str) -> str:
        if value not in choices:
            raise NanwatchError(
                say("cli.config.choice", option=option, value=value, choices=", ".join(choices))
            )
        return value

    return read


def _positive(option: str, value: str, example: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number <= 0:
        raise NanwatchError(say("cli.config.number", option=option, value=value, example=example))
    return number


def _whole(least: int) -> Callable[[str, str, str], int]:
    def read(option: str, value: str, example: str) -> int:
        number = int(value) if value.isascii() and value.isdigit() and len(value) < 16 else -1
        if number < least:
            raise NanwatchError(
                say("cli.config.whole", option=option, value=value, least=least, example=example)
            )
        return number

    return read


READERS: dict[str, tuple[Callable[[str, str, str], Any], str]] = {
    "--framework": (_one_of(FRAMEWORKS), "--framework plain"),
    "--output": (_text, "--output stable_training.py"),
    "--learning-rate": (_positive, "--learning-rate 5e-5"),
    "--clip": (_positive, "--clip 0.5"),
    "--total-steps": (_whole(1), "--total-steps 10000"),
    "--warmup-steps": (_whole(0), "--warmup-steps 500"),
    "--language": (_one_of(LANGUAGES), "--language zh"),
}
