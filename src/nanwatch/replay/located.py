"""What a replay or a live trace has found out, put into records."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from nanwatch.records import Birth, Hidden, Hop, Numbers
from nanwatch.replay.larger_modules import path_within
from nanwatch.replay.out_of_range import OutOfRange
from nanwatch.replay.roles import Roles
from nanwatch.replay.trace import Op
from nanwatch.watching.last_updates import LastUpdate
from nanwatch.watching.module_calls import path_of
from nanwatch.watching.stack import Stack, read_stack, user_frame

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


@dataclass
class Located:
    """Where it was born, in records; `call` is the birth op with its operands."""

    step: int
    kind: str
    phase: str
    birth: Birth
    by: str
    travel: tuple[Hop, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    notes: list[str] = field(default_factory=list)
    call: Call | None = None
    op: Op | None = None
    """The birth op itself, as it was traced."""
    kept_since_before: bool = False
    """It is in what the program has kept since before the steps on record: batch or not, nobody knows."""
    handed_out: bool = False
    """The memory was in other hands than torch's: a write there is not on record, and a replay makes none."""
    update: LastUpdate | None = None
    """The one that is to blame, where it was made again."""
    out_of_range: OutOfRange | None = None
    """No value turned bad: an index that pointed outside its table ended the program."""


def birth_of(op: Op, phase: str, roles: Roles) -> Birth:
    called = roles.owners(op)
    module, root = path_of(called), called[0] if called else None
    if phase == "weights":
        owners = [w for w in (roles.weight(o.key) for o in op.bad_outputs) if w is not None]
        module, root = (owners[0].module, owners[0].root) if owners else (module, root)
    birth = replace(birth_at(op.stack, op.name, module), within=path_within(root, module))
    outputs = tuple(o.numbers for o in op.outputs)
    inputs = tuple(o.numbers for o in op.inputs)
    return replace(birth, inputs=inputs, outputs=outputs, arguments=op.arguments, node=op.node)


def birth_at(stack: Stack, op: str | None, module: str | None) -> Birth:
    frame = user_frame(stack)
    frames = read_stack(stack)
    if frame is None:
        return Birth(op, module, None, None, "", frames)
    return Birth(op, module, frame.file, frame.line, frame.code, frames)


def hop_of(op: Op) -> Hop:
    frame = user_frame(op.stack)
    bad = sum(o.numbers.nan + o.numbers.posinf + o.numbers.neginf for o in op.outputs)
    count = sum(o.numbers.count for o in op.outputs)
    if frame is None:
        return Hop(op.name, op.phase, op.module, bad=bad, count=count)
    return Hop(op.name, op.phase, op.module, frame.file, frame.line, frame.code, bad, count)


def kind_of(measured: list[Numbers]) -> str | None:
    kinds = [n.kind for n in measured]
    return "nan" if "nan" in kinds else ("inf" if "inf" in kinds else None)
