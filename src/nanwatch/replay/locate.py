"""From a trouble to its birth: use the live trace if there was one, else run the step again and trace it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from nanwatch.messages import say
from nanwatch.records import Birth, Hidden, Hop, Incident, Numbers
from nanwatch.replay.again import Again, call_again, run_again
from nanwatch.replay.blame import Blame, first_harmful, hidden_births, looks_like_mask, silent_damage, way
from nanwatch.replay.live import LiveTracer
from nanwatch.replay.storages import key_of
from nanwatch.replay.trace import Op, Operand, Trace
from nanwatch.replay.tracer import OpTracer, measurable
from nanwatch.tensors import is_finite, numbers
from nanwatch.watching.module_calls import ModuleCalls
from nanwatch.watching.stack import Stack, read_stack, user_frame
from nanwatch.watching.tape import Entry, Tape, tensors_in
from nanwatch.watching.torch_functions import written_to
from nanwatch.watching.trouble import Trouble

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


def locate(trouble: Trouble, calls: ModuleCalls) -> Located | None:
    """None when it was no trouble after all: every infinity was on purpose, or a GradScaler's search."""
    live = trouble.live if isinstance(trouble.live, LiveTracer) else None
    roles = _Roles(trouble)
    found = None
    if live is not None and not trouble.scaler_search:
        found = _from_live_trace(trouble, live, roles)
    if found is None:
        found = _from_replay(trouble, live, roles, calls)
    if isinstance(found, _Healthy):
        return None
    found.notes = list(dict.fromkeys([*trouble.notes, *found.notes]))
    return found


class _Healthy:
    """The verdict that nothing is wrong after all."""


def _from_live_trace(trouble: Trouble, live: LiveTracer, roles: _Roles) -> Located | _Healthy | None:
    """None when the live trace cannot tell: it did not see the step, or not the part that matters."""
    tracer = live.tracer
    sinks = [i for i in (tracer.writers.get(t) for _, t in trouble.sinks) if i is not None]
    if trouble.seen_in == "weights":
        sinks = live.bad_updates()
    if trouble.seen_in == "trace":
        sinks = silent_damage(tracer.trace, tracer.step)
    if not sinks:
        return None
    blame = first_harmful(tracer.trace, sinks)
    if blame is None:
        return None
    if blame.outside is not None and (trouble.seen_in == "gradients" or roles.computed(blame.outside.key)):
        return None
    if trouble.seen_in == "output" and _on_purpose(tracer.trace, sinks):
        return _Healthy()
    return _located(trouble, tracer, live, roles, blame, sinks, "live trace")


def _from_replay(
    trouble: Trouble, live: LiveTracer | None, roles: _Roles, calls: ModuleCalls
) -> Located | _Healthy:
    again = run_again(trouble.tape, trouble.earlier, calls, without_scale=trouble.scaler_search)
    tracer = again.tracer
    bad, backward = _bad_of(trouble, again)
    sinks = [i for i in (tracer.writers.get(t) for t in bad) if i is not None]
    if trouble.seen_in == "exception" and not sinks:
        sinks = [index for _, index in tracer.writers.alive()]
    if trouble.seen_in == "output" and sinks and _on_purpose(tracer.trace, sinks):
        return _Healthy()
    blame = first_harmful(tracer.trace, sinks, backward) if sinks else None
    if blame is not None:
        found = _located(trouble, tracer, live, roles, blame, sinks, "replay")
        found.notes += again.notes
        return found
    if trouble.scaler_search:
        return _Healthy()
    outside = next((t for t in bad if tracer.writers.get(t) is None), None)
    if outside is None and not again.error:
        outside = next((t for _, t in trouble.sinks if roles.written_outside(key_of(t))), None)
    if outside is not None:
        operand = Operand(numbers(outside), key_of(outside), value=outside)
        return _brought_in(trouble, operand, live, roles, again.notes)
    return _not_again(trouble, again)


def _on_purpose(trace: Trace, sinks: list[int]) -> bool:
    """Whether only infinities that somebody asked for arrived: a model may return masked logits."""
    if any(o.numbers.nan for i in sinks for o in trace.ops[i].outputs):
        return False
    path = trace.ancestors(sinks)
    return all(op.bad_inputs or op.deliberate for op in path) and not any(
        o.source is None and not looks_like_mask(o.numbers) for op in path for o in op.bad_inputs
    )


def _bad_of(trouble: Trouble, again: Again) -> tuple[list[torch.Tensor], bool]:
    """The non-finite tensors of the replay, and whether they are gradients of a finite loss."""
    losses = [t for t in again.losses if measurable(t) and not is_finite(t)]
    if losses:
        return losses, False
    if trouble.seen_in in ("output", "exception"):
        outputs = [t for t in again.outputs if measurable(t) and not is_finite(t)]
        if outputs:
            return outputs, False
        made = [t for _, t in trouble.sinks]
        return made, False
    return [g for _, g in again.gradients if not is_finite(g)], True


def _not_again(trouble: Trouble, again: Again) -> Located:
    """The step was bad and its replay is not: say so, and give what was recorded."""
    kind = _kind([numbers(t) for _, t in trouble.sinks]) or "nan"
    phase = {"loss": "loss", "gradients": "backward", "weights": "weights"}.get(trouble.seen_in, "forward")
    entry = next((e for e in reversed(trouble.tape.entries) if e.kind != "write"), None)
    birth = _birth_at(entry.stack if entry is not None else (), None, None)
    notes = [*again.notes]
    if again.error is not None:
        notes.append(say("watch.replay_failed", error=f"{type(again.error).__name__}: {again.error}"))
    else:
        notes.append(say("watch.not_again", what=trouble.seen_in))
    outputs = tuple(numbers(t, name) for name, t in trouble.sinks[:4])
    return Located(trouble.step, kind, phase, replace(birth, outputs=outputs), "recorded facts", notes=notes)


def _located(
    trouble: Trouble,
    tracer: OpTracer,
    live: LiveTracer | None,
    roles: _Roles,
    blame: Blame,
    sinks: list[int],
    by: str,
) -> Located:
    path = way(tracer.trace, blame.op.index, sinks)
    travel = tuple(_hop(op) for op in path if not op.is_view)
    hidden = tuple(
        Hidden(
            _hop(born),
            _hop(hider),
            hider.silently_wrong,
            say("hidden.wrong_zero") if hider.silently_wrong else "",
        )
        for born, hider in hidden_births(tracer.trace, tracer.step)
        if born.index != blame.op.index or hider.silently_wrong
    )[:5]
    into_weights = _writes_weights(blame.op, path, roles)
    if blame.outside is not None and not (into_weights and not roles.weight(blame.outside.key)):
        found = _brought_in(trouble, blame.outside, live, roles, [])
        return replace(found, by=by, travel=(_hop(blame.op), *travel), hidden=hidden)
    op = blame.op
    phase = "weights" if into_weights else _phase(op, trouble, path)
    birth = _birth_of(op, phase, roles)
    birth = replace(
        birth, samples=_samples(op.output, trouble.tape, op.turns_inf_into_nan) if phase != "weights" else ()
    )
    step = op.step if phase == "optimizer" else trouble.step
    kind = _kind([o.numbers for o in op.outputs]) or "nan"
    return Located(step, kind, phase, birth, by, travel, hidden, [], op.call)


def _writes_weights(op: Op, path: list[Op], roles: _Roles) -> bool:
    """Whether the value came to the model as a weight: some op outside of it wrote it into one."""
    outside = [o for o in [op, *path] if not o.modules and o.phase in ("data", "loss", "forward")]
    return any(roles.weight(operand.key) for o in outside for operand in o.bad_outputs)


def _phase(op: Op, trouble: Trouble, path: list[Op]) -> str:
    if op.phase != "data":
        return op.phase
    if trouble.seen_in == "gradients":
        return "backward"  # somebody's own arithmetic on the gradients
    following = next((o.phase for o in path if o.phase != "data"), None)
    return "loss" if op.after_root and following == "loss" else "data"


def _brought_in(
    trouble: Trouble, operand: Operand, live: LiveTracer | None, roles: _Roles, notes: list[str]
) -> Located:
    """A tensor that was bad before any traced op read it: a weight, the batch, a loaded file."""
    weight = roles.weight(operand.key)
    tensor = operand.value
    phase = "weights" if weight else ("backward" if trouble.seen_in == "gradients" else "data")
    samples = _samples(tensor, trouble.tape) if phase == "data" else ()
    op = _known_writer(tensor, live) or roles.origin(operand.key)
    if op is not None:
        phase = "optimizer" if op.phase == "optimizer" else phase
        birth = _birth_of(op, phase, roles)
        birth = replace(birth, samples=samples or _samples(op.output, trouble.tape, op.turns_inf_into_nan))
        step = op.step if phase == "optimizer" else trouble.step
        kind = _kind([o.numbers for o in op.outputs]) or "nan"
        return Located(step, kind, phase, birth, "replay", notes=list(notes), call=op.call)
    name = weight.name if weight else roles.argument_name(operand.key)
    stack = live.arrival_of(tensor) if live is not None and tensor is not None else None
    stack = stack or roles.last_write(operand.key) or (() if weight else roles.first_use(operand.key))
    birth = _birth_at(stack, None, weight.module if weight else None)
    birth = replace(birth, outputs=(replace(operand.numbers, name=name),), samples=samples)
    kind = _kind([operand.numbers]) or "nan"
    return Located(trouble.step, kind, phase, birth, "replay", notes=list(notes))


def _known_writer(tensor: torch.Tensor | None, live: LiveTracer | None) -> Op | None:
    """The op of the live trace that is to blame for what is in this memory."""
    writer = live.writer_of(tensor) if live is not None and tensor is not None else None
    if live is None or writer is None:
        return None
    blame = first_harmful(live.tracer.trace, [writer])
    return live.tracer.trace.ops[writer] if blame is None else blame.op


@dataclass(frozen=True)
class _Weight:
    name: str
    module: str


class _Roles:
    """What the program calls the tensors: parameters and buffers of its modules, arguments of its calls."""

    def __init__(self, trouble: Trouble) -> None:
        self._tape = trouble.tape
        self._weights: dict[int, _Weight] = {}
        for entry in trouble.tape.entries:
            if isinstance(entry.call, nn.Module):
                self._note_module(entry.call)
        for group in trouble.optimizer.param_groups if trouble.optimizer is not None else ():
            for index, parameter in enumerate(group["params"]):
                self._weights.setdefault(key_of(parameter), _Weight(f"parameter {index}", ""))

    def _note_module(self, root: nn.Module) -> None:
        for name, tensor in [*root.named_parameters(), *root.named_buffers()]:
            shown = name.replace("_orig_mod.", "")
            self._weights.setdefault(key_of(tensor), _Weight(shown, shown.rpartition(".")[0]))

    def weight(self, key: int) -> _Weight | None:
        return self._weights.get(key)

    def argument_name(self, key: int) -> str | None:
        for entry in self._tape.entries:
            if entry.kind == "module":
                for index, tensor in enumerate(tensors_in((entry.args, entry.kwargs))):
                    if key_of(tensor) == key:
                        return f"input {index} of {type(entry.call).__name__}"
        return None

    def computed(self, key: int) -> bool:
        """Whether a call on the tape made this memory: a model or a compiled function, not data."""
        return any(
            key_of(tensor) == key
            for entry in self._tape.entries
            if entry.kind in ("module", "apply")
            for tensor in tensors_in(entry.outputs)
        )

    def written_outside(self, key: int) -> bool:
        return self._last_entry(key) is not None

    def _last_entry(self, key: int) -> Entry | None:
        """The last call of the program's own code that wrote into this memory."""
        for entry in reversed(self._tape.entries):
            if entry.kind == "write" and any(
                key_of(t) == key for t in tensors_in(written_to(entry.args, entry.kwargs))
            ):
                return entry
            if entry.kind == "op" and any(key_of(t) == key for t in tensors_in(entry.outputs)):
                return entry
        return None

    def origin(self, key: int, depth: int = 0) -> Op | None:
        """The op of the program's own code that first made a bad value which came to be in this memory:
        follow the tape backwards by value, then make that one call again, traced, on copies."""
        entry = self._last_entry(key)
        if entry is None or depth > 100:
            return None
        target = {key_of(t) for t in tensors_in(entry.outputs)} if entry.kind == "op" else {key}
        for tensor in tensors_in((entry.args, entry.kwargs)):
            if key_of(tensor) not in target and measurable(tensor) and not is_finite(tensor):
                return self.origin(key_of(tensor), depth + 1)
        return call_again(entry, self._tape.step) if entry.kind == "op" else None

    def last_write(self, key: int) -> Stack | None:
        entry = self._last_entry(key)
        return None if entry is None else entry.stack

    def first_use(self, key: int) -> Stack:
        for entry in self._tape.entries:
            if any(key_of(t) == key for t in tensors_in((entry.args, entry.kwargs))):
                return entry.stack
        return ()


def _birth_of(op: Op, phase: str, roles: _Roles) -> Birth:
    module = op.module
    if phase == "weights":
        owners = [w.module for w in (roles.weight(o.key) for o in op.bad_outputs) if w is not None]
        module = owners[0] if owners else module
    birth = _birth_at(op.stack, op.name, module)
    outputs = tuple(o.numbers for o in op.outputs)
    inputs = tuple(o.numbers for o in op.inputs)
    return replace(birth, inputs=inputs, outputs=outputs, arguments=op.arguments, node=op.node)


def _birth_at(stack: Stack, op: str | None, module: str | None) -> Birth:
    frame = user_frame(stack)
    frames = read_stack(stack)
    if frame is None:
        return Birth(op, module, None, None, "", frames)
    return Birth(op, module, frame.file, frame.line, frame.code, frames)


def _hop(op: Op) -> Hop:
    frame = user_frame(op.stack)
    bad = sum(o.numbers.nan + o.numbers.posinf + o.numbers.neginf for o in op.outputs)
    count = sum(o.numbers.count for o in op.outputs)
    if frame is None:
        return Hop(op.name, op.phase, op.module, bad=bad, count=count)
    return Hop(op.name, op.phase, op.module, frame.file, frame.line, frame.code, bad, count)


def _kind(measured: list[Numbers]) -> str | None:
    kinds = [n.kind for n in measured]
    return "nan" if "nan" in kinds else ("inf" if "inf" in kinds else None)


def _samples(bad: torch.Tensor | None, tape: Tape, only_nan: bool = False) -> tuple[int, ...]:
    """The rows of the batch in which `bad` is not finite, where the batch can be found in its shape."""
    size = batch_size(tape)
    if (
        bad is None
        or size is None
        or bad.dim() == 0
        or bad.layout is not torch.strided
        or not measurable(bad)
    ):
        return ()
    mask = torch.isnan(bad.detach()) if only_nan else ~torch.isfinite(bad.detach())
    dims = [d for d in range(bad.dim()) if bad.shape[d] == size]
    if dims:
        rows = mask.transpose(0, dims[0]).reshape(size, -1).any(1)
    elif bad.shape[0] % size == 0 and bad.shape[0] > 0:
        rows = mask.reshape(size, -1).any(1)
    else:
        return ()
    return tuple(int(i) for i in rows.nonzero().reshape(-1).tolist())


def batch_size(tape: Tape) -> int | None:
    """How many rows the last call of a model was given."""
    for entry in reversed(tape.entries):
        if entry.kind == "module":
            for tensor in tensors_in((entry.args, entry.kwargs)):
                if tensor.dim() > 0:
                    return int(tensor.shape[0])
    for tensor in tape.used.values():
        if tensor.dim() > 0 and not tensor.requires_grad:
            return int(tensor.shape[0])
    return None


def located_by_trace(tracer: OpTracer, blame: Blame) -> Incident:
    """The birth that a tracer by itself has seen, as an incident."""
    op = blame.op
    born = blame.outside is None
    birth = _birth_at(op.stack, op.name if born else None, op.module)
    inputs = tuple(o.numbers for o in op.inputs)
    outputs = tuple(o.numbers for o in (op.outputs if blame.outside is None else [blame.outside]))
    birth = replace(birth, inputs=inputs, outputs=outputs, arguments=op.arguments, node=op.node)
    sinks = [index for _, index in tracer.writers.alive()]
    return Incident(
        step=-1,
        rank=0,
        kind=_kind(list(outputs)) or "nan",
        phase=op.phase if born else "data",
        birth=birth,
        action="observed",
        seen_in="trace",
        located_by="live trace",
        travel=tuple(_hop(o) for o in way(tracer.trace, op.index, sinks) if not o.is_view),
        hidden=tuple(Hidden(_hop(a), _hop(b)) for a, b in hidden_births(tracer.trace, tracer.step)[:5]),
    )
