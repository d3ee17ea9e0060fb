"""`repro.py`: the birth op alone, with the operands it had, as a program that runs by itself.

It exits with 0 when the op gives the same kind of non-finite value again, 1 when it does not or cannot
be run.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from nanwatch.messages import say
from nanwatch.records import Incident
from nanwatch.show.op_call import CallSpec, TensorSpec, encode_call, operand_bytes
from nanwatch.show.repro_template import TEMPLATE

__all__ = ["encode_call", "operand_bytes", "repro_source"]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KIND_NAMES = {"nan": "NaN", "inf": "Inf"}


def repro_source(op: str, args_spec: CallSpec, incident: Incident) -> str:
    """The text of repro.py for `op` ("aten._softmax.default"), to lie beside tensors.safetensors."""
    kind = _kind_at_birth(incident)
    parts = {
        "HEADER": "\n".join(_header(op, kind, incident)),
        "CALL": _call(op, args_spec),
        "OP": _op_path(op),
        "KIND": repr(kind),
        "TENSORS": _table(args_spec["tensors"]),
        "RNG": repr(dict(args_spec["rng"])),
        "MUTATED": repr(_names_by_argument(args_spec)),
        "SAY_SEEN": _literal("repro.seen", kind=_KIND_NAMES[kind]),
        "SAY_NOT_SEEN": _literal("repro.not_seen", kind=_KIND_NAMES[kind]),
        "SAY_FAILED": _literal("repro.failed"),
        "SAY_NO_OP": _literal("repro.no_op", op=op),
        "SAY_DEVICE": _literal("repro.other_device"),
        "SAY_INPUT": _literal("repro.input"),
        "SAY_OUTPUT": _literal("repro.output"),
        "SAY_NONFINITE": _literal("repro.nonfinite"),
    }
    return re.sub(r"@(\w+)@", lambda match: parts[match.group(1)], TEMPLATE)


def _kind_at_birth(incident: Incident) -> str:
    """The op may have made an Inf that became NaN only later: what its own outputs held decides."""
    for numbers in incident.birth.outputs:
        if numbers.kind is not None:
            return numbers.kind
    return incident.kind


def _header(op: str, kind: str, incident: Incident) -> list[str]:
    birth = incident.birth
    place = f"{birth.file}:{birth.line}" if birth.file is not None else ""
    lines = [
        say("repro.title", kind=_KIND_NAMES[kind]),
        op + (f" ({birth.module})" if birth.module else ""),
        " ".join(part for part in (place, birth.code.strip()) if part),
        say("repro.usage", file="repro.py"),
    ]
    return ["# " + _one_line(line) for line in lines if line]


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _literal(message: str, **values: object) -> str:
    return repr(say(message, **values))


def _op_path(op: str) -> str:
    parts = op.split(".")
    if len(parts) not in (2, 3) or not all(_IDENTIFIER.fullmatch(part) for part in parts):
        raise ValueError(f"{op!r} is no op: expected namespace.name.overload, for example aten.add.Tensor")
    return ".".join(["torch.ops", *parts])


def _call(op: str, spec: CallSpec) -> str:
    """`torch.ops.aten._softmax.default(operand('self'), -1, False)`, an argument a line when long."""
    arguments = [_expression(value) for value in spec["args"]]
    arguments += [_keyword(name, value) for name, value in spec["kwargs"].items()]
    short = f"{_op_path(op)}({', '.join(arguments)})"
    if len(short) <= 90 and "#" not in short:
        return short
    return "\n".join([f"{_op_path(op)}(", *(f"        {a}," for a in arguments), "    )"])


def _keyword(name: str, value: Any) -> str:
    if not _IDENTIFIER.fullmatch(name):
        raise ValueError(f"{name!r} is no keyword argument of an op")
    return f"{name}={_expression(value)}"


def _expression(value: Any) -> str:
    """Python source for one argument of the spec."""
    if value is None or isinstance(value, (bool, int, str)):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if isinstance(value, list):
        return f"[{', '.join(_expression(item) for item in value)}]"
    return _tagged_expression(value)


def _tagged_expression(value: dict[str, Any]) -> str:
    (tag, content), *rest = value.items()
    if rest:
        raise ValueError(f"an argument has one tag, found {sorted(value)}")
    if tag == "tensor":
        return f"operand({content!r})"
    if tag == "float":
        return f"float({str(content)!r})"
    if tag == "complex":
        real, imag = content
        return f"complex(float({str(real)!r}), float({str(imag)!r}))"
    if tag == "torch" and _IDENTIFIER.fullmatch(content):
        return f"torch.{content}"
    if tag == "device":
        return f"device({content!r})"
    if tag == "dict":
        return "{" + ", ".join(f"{key!r}: {_expression(item)}" for key, item in content) + "}"
    if tag == "opaque":
        return f"unrecorded({say('repro.opaque', what=content)!r})"
    raise ValueError(f"unknown argument in the call: {value!r}")


def _table(tensors: dict[str, TensorSpec]) -> str:
    """The operands, one a line: JSON of these plain values is Python too."""
    lines = [f"    {name!r}: {json.dumps(spec, ensure_ascii=True)}," for name, spec in tensors.items()]
    return "\n".join(["{", *lines, "}"]) if lines else "{}"


def _names_by_argument(spec: CallSpec) -> dict[int | str, list[str]]:
    """Which operands each argument holds: an op that returns nothing shows its result in these."""
    found: dict[int | str, list[str]] = {}
    arguments: list[tuple[int | str, Any]] = [*enumerate(spec["args"]), *spec["kwargs"].items()]
    for key, value in arguments:
        names = list(_names_in(value))
        if names:
            found[key] = names
    return found


def _names_in(value: Any) -> list[str]:
    if isinstance(value, list):
        return [name for item in value for name in _names_in(item)]
    if isinstance(value, dict) and "tensor" in value:
        return [value["tensor"]]
    return []
