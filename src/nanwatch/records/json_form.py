"""Records to JSON values and back. Unknown fields are ignored on reading, so that an older
nanwatch reads what a newer one wrote; floats JSON cannot hold are written as text."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from typing import Any, TypeVar

Record = TypeVar("Record")


def to_json(value: Any) -> Any:
    """`value` as what `json.dumps(..., allow_nan=False)` takes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    if isinstance(value, dict):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def from_json(kind: type[Record], data: Any) -> Record:
    """The record of type `kind` that `to_json` turned into `data`."""
    if not isinstance(data, dict):
        raise ValueError(f"{kind.__name__}: expected an object, found {type(data).__name__}")
    hints = _hints(kind)  # type: ignore[arg-type]
    known = {}
    for f in dataclasses.fields(kind):  # type: ignore[arg-type]
        if f.name in data:
            known[f.name] = _read(hints[f.name], data[f.name])
    try:
        return kind(**known)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from None


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _read(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_json(hint, value)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(args[0], v) for v in value)
    if origin in (typing.Union, types.UnionType) and value is not None:
        for option in args:
            if dataclasses.is_dataclass(option) and isinstance(value, dict):
                return _read(option, value)
    return value
