"""What a caller gave: taken, or refused with one sentence that names the call, the argument and its value."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from nanwatch.errors import NanwatchError
from nanwatch.messages import say


def whole_number(call: str, name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise _refused(call, name, value, say("argument.whole_number", least=least))
    return int(value)


def number(call: str, name: str, value: Any) -> float:
    """Not below 0; it may be Inf."""
    if not _is_number(value) or not value >= 0:
        raise _refused(call, name, value, say("argument.number"))
    return float(value)


def share(call: str, name: str, value: Any) -> float:
    if not _is_number(value) or not 0 <= value <= 1:
        raise _refused(call, name, value, say("argument.share"))
    return float(value)


def positive_number(call: str, name: str, value: Any, most: float = math.inf) -> float:
    """Finite, and more than 0."""
    if not _is_number(value) or not math.isfinite(value) or not 0 < value <= most:
        above = "argument.positive" if most == math.inf else "argument.positive_up_to"
        raise _refused(call, name, value, say(above, most=f"{most:g}"))
    return float(value)


def yes_or_no(call: str, name: str, value: Any) -> bool:
    if type(value) is not bool:
        raise _refused(call, name, value, say("argument.yes_or_no"))
    return value


def folder(call: str, name: str, value: Any) -> None:
    """A path, or None."""
    if value is not None and (not isinstance(value, (str, os.PathLike)) or not os.fspath(value)):
        raise _refused(call, name, value, say("argument.folder"))


def no_others(call: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise NanwatchError(say("argument.unknown", call=call, name=name, known=", ".join(sorted(known))))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _refused(call: str, name: str, value: Any, expected: str) -> NanwatchError:
    return NanwatchError(say("argument.refused", call=call, name=name, value=repr(value), expected=expected))
