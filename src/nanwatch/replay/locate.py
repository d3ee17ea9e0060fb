"""From a trouble to its birth: use the live trace if there was one, else run the step again and trace it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch

from nanwatch.messages import say
from nanwatch.records import Hidden, Hop
from nanwatch.replay.again import Again, follow_the_weights, run_again
from nanwatch.replay.blame import Blame, first_harmful, hidden_births, looks_like_mask, silent_damage, way
from nanwatch.replay.by_an_update import keeps_something_bad, update_made_again, updates_of
from nanwatch.replay.carried_on import call_that_made, made_by_an_earlier_call
from nanwatch.replay.infinities_written_down import (
    forbidden_in_outputs,
    forgive_masks_in_weights,
    forgive_what_is_written_down,
    unwanted_infinity,
)
from nanwatch.replay.larger_modules import path_within
from nanwatch.replay.live import LiveTracer
from nanwatch.replay.located import Located, birth_at, birth_of, hop_of, kind_of
from nanwatch.replay.made_once import made_once
from nanwatch.replay.memory_changed import located_in_memory
from nanwatch.replay.multiplied import multiplied
from nanwatch.replay.other_ranks import COLLECTIVES, hands_to_others, has_other_ranks, others_sent
from nanwatch.replay.roles import Roles, Weight, written_down
from nanwatch.replay.samples import bad_rows, bad_rows_of_batch
from nanwatch.replay.trace import Op, Operand, Trace, written_by
from nanwatch.replay.tracer import OpTracer, measurable
from nanwatch.replay.without_given import keeping, run_without_given, with_numbers
from nanwatch.tensors import is_finite, numbers
from nanwatch.watching.last_updates import LastUpdate
from nanwatch.watching.module_calls import ModuleCalls
from nanwatch.watching.ranks import NeedsOtherRanks
from nanwatch.watching.stack import Stack
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, tensors_in, version_of
from nanwatch.watching.trouble import Trouble

SHOWN_IN_PHASE = {"loss": "loss", "gradients": "backward", "weights": "weights", "checkpoint": "weights"}


def locate(trouble: Trouble, calls: ModuleCalls) -> Located | None:
    """None when it was no trouble after all: every infinity was on purpose, or a GradScaler's search."""
    live = trouble.live if isinstance(trouble.live, LiveTracer) else None
    follow_the_weights(trouble.tape, trouble.earlier, calls)
    roles = Roles(trouble)
    roles.made_again = partial(made_once, trouble=trouble, calls=calls)
    roles.made_earlier = partial(made_by_an_earlier_call, trouble=trouble, calls=calls)
    roles.harms_without_given = partial(_harms_without_given, trouble, calls)
    if trouble.seen_in == "hyperparameter" and trouble.last_update is not None:
        return _bad_hyperparameter(trouble, trouble.last_update, roles)
    if trouble.seen_in == "memory" and trouble.damage is not None and trouble.damage.turned is not None:
        return located_in_memory(trouble, trouble.damage.turned)
    found = None
    if live is not None and not trouble.scaler_search:
        found = _from_live_trace(trouble, live, roles, calls)
    if found is None:
        found = _from_replay(trouble, live, roles, calls)
    if isinstance(found, _Healthy) or _saved_on_purpose(trouble, found):
        return None
    if trouble.damage is not None and not trouble.prevented:  # other weights, as is said
        found.notes = [note for note in found.notes if note != say("watch.replay_differs")]
    found.notes = list(dict.fromkeys([*trouble.notes, *found.notes]))
    return found


def _bad_hyperparameter(trouble: Trouble, update: LastUpdate, roles: Roles) -> Located:
    """The update is still to come: made on copies, it shows the op that the bad rate spoils."""
    op = update_made_again(update)
    if op is not None:
        return _made_outside(trouble, op, "optimizer", (), roles, [])
    birth = birth_at(update.stack, None, None)
    return Located(trouble.step, "nan", "optimizer", birth, "recorded facts", notes=list(trouble.notes))


def located_behind(trouble: Trouble, tracer: OpTracer, sinks: list[int], by: str) -> Located | None:
    """What made the values that these ops left behind."""
    blame = first_harmful(tracer.trace, sinks) if sinks else None
    live = trouble.live if isinstance(trouble.live, LiveTracer) else None
    return None if blame is None else _located(trouble, tracer, live, Roles(trouble), blame, sinks, by)


OTHERWISE_UNDER_A_MODE = frozenset(("aten._ctc_loss.default",))
"""Ops of which torch takes another overload where a mode listens. A replay is one, and so is whatever else
names ops to people: one name for all."""


class _Healthy:
    """The verdict that nothing is wrong after all."""


def _from_live_trace(
    trouble: Trouble, live: LiveTracer, roles: Roles, calls: ModuleCalls
) -> Located | _Healthy | None:
    """None when the live trace cannot tell: it did not see the step, or not the part that matters."""
    tracer = live.tracer
    sinks = [i for i in (tracer.writers.get(t) for _, t in trouble.sinks) if i is not None]
    if trouble.seen_in == "weights":
        sinks = live.bad_updates()
    if trouble.seen_in == "trace":
        sinks = silent_damage(tracer.trace, tracer.step)
    if not sinks:
        return None
    forgive_masks_in_weights(tracer.trace, roles, trouble)
    blame = _decided(first_harmful(tracer.trace, sinks), trouble, calls)
    if blame is None:
        return None
    if blame.op.name in OTHERWISE_UNDER_A_MODE:
        return None
    unseen = tracer.unseen or trouble.seen_in == "gradients"
    if unseen and any(_from_outside(op) for op in tracer.trace.ancestors(sinks)):
        return None  # from a backward, which is not traced live
    if blame.outside is not None and roles.computed(blame.outside.key):
        return None
    if trouble.seen_in in ("output", "exception", "checkpoint") and _on_purpose(
        tracer.trace, sinks, roles, trouble
    ):
        return _Healthy()
    return _located(trouble, tracer, live, roles, blame, sinks, "live trace")


def _from_replay(
    trouble: Trouble, live: LiveTracer | None, roles: Roles, calls: ModuleCalls
) -> Located | _Healthy:
    again = run_again(trouble.tape, trouble.earlier, calls, without_scale=trouble.scaler_search)
    tracer = again.tracer
    usual = live.tracer.usual if live is not None else set()
    lived_with = live.tracer.lived_with if live is not None else set()
    for op in tracer.trace.ops.values() if usual or lived_with else ():
        op.usual = op.site in usual
        op.lived_with = op.place in lived_with
    roles.stand_ins = tracer.untouched.stands_for if tracer.untouched is not None else {}
    forgive_what_is_written_down(tracer.trace, roles)
    forgive_masks_in_weights(tracer.trace, roles, trouble)
    bad, backward = _bad_of(trouble, again)
    sinks = [i for i in (tracer.writers.get(t) for t in bad) if i is not None]
    if trouble.seen_in == "weights":
        sinks += _written_into_copies(tracer, {key_of(t) for t in bad}, roles.stand_ins)
    if trouble.seen_in == "exception" and not (sinks and _are_all(trouble, bad)):
        made = [op.index for op in tracer.trace.ops.values() if op.bad_outputs]
        sinks = [index for _, index in tracer.writers.alive()] or made[-1:]
    if trouble.seen_in in ("output", "exception") and sinks:
        sinks = [index for index in sinks if not _on_purpose(tracer.trace, [index], roles, trouble)]
        if not sinks:
            return _Healthy()
    blame = first_harmful(tracer.trace, sinks, backward) if sinks else None
    blame = _decided(blame, trouble, calls)
    if blame is not None and not (again.differs and blame.outside is not None):
        of_loss = trouble.seen_in == "gradients" and not backward  # which a transform kept to itself
        shown = replace(trouble, seen_in="loss") if of_loss else trouble
        found = _located(shown, tracer, live, roles, blame, sinks, "replay")
        found.notes += again.notes
        return found
    if trouble.scaler_search:
        return _Healthy()
    if isinstance(again.error, NeedsOtherRanks) and live is not None:
        sent = _sent_to_others(trouble, live, roles)
        if sent is not None:
            return sent
    if again.differs:
        spoilt = roles.spoilt_weight()
        return _not_again(trouble, again) if spoilt is None else _brought_in(trouble, spoilt, live, roles, [])
    outside = next((t for t in bad if tracer.writers.get(t) is None), None)
    if outside is None and trouble.seen_in == "gradients" and not again.error:
        outside = next((t for _, t in trouble.sinks if roles.written_outside(key_of(t))), None)
        if outside is not None and others_sent(outside, live):
            return _not_again(trouble, again)
    if outside is not None:
        operand = Operand(numbers(outside), key_of(outside), value=outside)
        return _brought_in(trouble, operand, live, roles, again.notes)
    return _not_again(trouble, again)


def _written_into_copies(tracer: OpTracer, state: set[int], stand_ins: dict[int, int]) -> list[int]:
    """The ops that wrote into what stood in for this memory of the program, buffers of a model; if the values
    were born in the step, and not handed to it."""
    copies = (copy for copy, original in stand_ins.items() if original in state)
    sinks = [index for index in map(tracer.writers.at, copies) if index is not None]
    blame = first_harmful(tracer.trace, sinks) if sinks else None
    return sinks if blame is not None and blame.outside is None else []


def _decided(blame: Blame | None, trouble: Trouble, calls: ModuleCalls) -> Blame | None:
    """Between NaN that was given and a birth beside it: whether the birth is still there, and to blame, in
    the same step without that NaN."""
    if blame is None or blame.rival is None:
        return blame
    again = run_without_given(trouble, calls, with_numbers)
    bad, backward = _bad_of(trouble, again)
    sinks = [i for i in (again.tracer.writers.get(t) for t in bad) if i is not None]
    found = first_harmful(again.tracer.trace, sinks, backward) if sinks and again.error is None else None
    same = found is not None and found.outside is None and found.op.place == blame.rival.op.place
    return blame.rival if same else blame


def _harms_without_given(trouble: Trouble, calls: ModuleCalls, op: Op, made: list[torch.Tensor]) -> bool:
    """Whether what was born in this op, before the step, is enough to spoil it."""
    again = run_without_given(trouble, calls, keeping(op, made))
    bad, _ = _bad_of(trouble, again)
    return again.error is None and any(again.tracer.writers.get(t) is not None for t in bad)


def _sent_to_others(trouble: Trouble, live: LiveTracer, roles: Roles) -> Located | None:
    """What this rank itself made and then handed to the others, in this step: what came back to it as a bad
    gradient is its own."""
    trace = live.tracer.trace
    sinks = [o.index for o in trace.ops.values() if o.step == trouble.step and hands_to_others(o)]
    blame = first_harmful(trace, sinks) if sinks else None
    if blame is None or blame.outside is not None or blame.op.name.startswith(COLLECTIVES):
        return None
    return _located(trouble, live.tracer, live, roles, blame, sinks, "live trace")


def _from_outside(op: Op) -> bool:
    return any(o.source is None and not o.from_python for o in op.bad_inputs)


def _on_purpose(trace: Trace, sinks: list[int], roles: Roles, trouble: Trouble) -> bool:
    """Whether only infinities that somebody asked for arrived: a model may return masked logits."""
    arrived = [o.numbers for i in sinks for o in trace.ops[i].outputs]
    if any(n.nan for n in arrived):
        return False
    with forbidden_in_outputs(trace, roles, trouble):
        path = trace.ancestors(sinks)
        handed_on = (op.deliberate or (op.bad_inputs and op.fresh is None) for op in path)
        if multiplied(path) or not all(handed_on):
            return False
        given = [o for op in path for o in op.bad_inputs if o.source is None or o.is_a_mask]
        if any(o.is_a_mask for o in given) and any(n.posinf for n in arrived):
            return False  # what is forbidden stays -inf
        return all(o.is_a_mask or looks_like_mask(o.numbers) for o in given)


def _bad_of(trouble: Trouble, again: Again) -> tuple[list[torch.Tensor], bool]:
    """The non-finite tensors of the replay, and whether they are gradients of a finite loss."""
    losses = [t for t in again.losses if measurable(t) and not is_finite(t)]
    if losses:
        return losses, False
    if trouble.seen_in in ("weights", "checkpoint"):
        return [t for _, t in trouble.sinks], False
    if trouble.seen_in in ("output", "exception"):
        held = again.counterparts(t for _, t in trouble.sinks) if trouble.seen_in == "exception" else []
        outputs = [t for t in held or again.outputs if measurable(t) and not is_finite(t)]
        if outputs:
            return outputs, False
        made = [t for _, t in trouble.sinks]
        return made, False
    return [g for _, g in again.gradients if not is_finite(g)], True


def _are_all(trouble: Trouble, bad: list[torch.Tensor]) -> bool:
    """Whether what the program died of may be among these: no NaN without one here."""
    return any(_has_nan(t) for t in bad) or not any(_has_nan(t) for _, t in trouble.sinks)


def _has_nan(tensor: torch.Tensor) -> bool:
    return measurable(tensor) and bool(numbers(tensor).nan)


def _not_again(trouble: Trouble, again: Again) -> Located:
    """The step was bad and its replay is not: say so, and give what was recorded."""
    given = _bad_argument(trouble) if isinstance(again.error, NeedsOtherRanks) else None
    if given is not None:
        found = _brought_in(trouble, given, None, Roles(trouble), [*again.notes, str(again.error)])
        return replace(found, by="recorded facts")
    shown = [t for name, t in trouble.sinks if name == "loss"] or [t for _, t in trouble.sinks]
    kind = kind_of([numbers(t) for t in shown]) or "nan"
    phase = SHOWN_IN_PHASE.get(trouble.seen_in, "forward")
    last = [e for e in trouble.tape.entries if e.kind == "backward"] if phase == "backward" else []
    entry = next((e for e in reversed(last or trouble.tape.entries) if e.kind != "write"), None)
    first = next((e for e in trouble.tape.entries if e.kind != "write" and _shows_bad(e)), None)
    handed_out = None if again.error or has_other_ranks() else _handed_out(trouble)
    if first is not None and handed_out is None and phase in ("loss", "forward"):
        entry, phase = first, "forward" if first.kind == "module" else phase
    birth = birth_at(handed_out or (entry.stack if entry is not None else ()), None, None)
    birth = replace(birth, samples=_rows_shown(first, trouble) if phase in ("loss", "forward") else ())
    notes = [*again.notes]
    if handed_out is not None:
        notes = [n for n in notes if n != say("watch.replay_differs")] + [say("watch.handed_out")]
    elif again.differs:
        pass  # said already
    elif isinstance(again.error, NeedsOtherRanks):
        notes.append(str(again.error))
    elif again.error is not None:
        notes.append(say("watch.replay_failed", error=f"{type(again.error).__name__}: {again.error}"))
    elif has_other_ranks():
        notes.append(say("watch.from_another_rank"))
    else:
        notes.append(say("watch.not_again", what=trouble.seen_in))
    birth = replace(birth, outputs=tuple(numbers(t, name) for name, t in trouble.sinks[:4]))
    found = Located(trouble.step, kind, phase, birth, "recorded facts", notes=notes)
    return replace(found, handed_out=handed_out is not None)


def _handed_out(trouble: Trouble) -> Stack | None:
    """Where the program has given memory to NumPy or the like that is bad now and in a replay is not."""
    places = trouble.handed_out
    if not places:
        return None
    made = (t for e in trouble.tape.entries for t, _ in e.made)
    seen = (t for _, t in trouble.sinks)
    bad = [t for t in (*made, *seen) if places.get(t) is not None and _is_bad(t)]
    return places.get(bad[0]) if bad else None


def _is_bad(tensor: torch.Tensor) -> bool:
    return measurable(tensor) and not is_finite(tensor)


def _bad_argument(trouble: Trouble) -> Operand | None:
    """What the first model of the step was given and is not finite; a mask may hold infinities."""
    called = next((e for e in trouble.tape.entries if e.kind == "module"), None)
    for tensor in [] if called is None else filter(measurable, tensors_in((called.args, called.kwargs))):
        found = numbers(tensor)
        if not found.finite and not looks_like_mask(found):
            return Operand(found, key_of(tensor), value=tensor)
    return None


def _shows_bad(entry: Entry) -> bool:
    unchanged = [t for t, version in entry.made if version_of(t) == version and measurable(t)]
    return not all(is_finite(t) for t in unchanged)


def _rows_shown(entry: Entry | None, trouble: Trouble) -> tuple[int, ...]:
    """The rows that are bad in what a call has returned."""
    made = [t for t, _ in entry.made] if entry is not None else []
    return next(filter(None, (bad_rows(t, trouble.tape) for t in made)), ())


def _located(
    trouble: Trouble,
    tracer: OpTracer,
    live: LiveTracer | None,
    roles: Roles,
    blame: Blame,
    sinks: list[int],
    by: str,
) -> Located:
    path = way(tracer.trace, blame.op.index, sinks)
    travel = tuple(hop_of(op) for op in path if not op.is_view)
    hidden = tuple(
        Hidden(
            hop_of(born),
            hop_of(hider),
            hider.silently_wrong,
            say("hidden.wrong_zero") if hider.silently_wrong else "",
        )
        for born, hider in hidden_births(tracer.trace, tracer.step)
        if born.index != blame.op.index or hider.silently_wrong
    )[:5]
    unwanted = unwanted_infinity(blame, tracer.trace, roles)
    if unwanted is not None:
        made_by, key = unwanted
        outside = "loss" if made_by.after_root or made_by.phase == "loss" else "data"
        phase = "weights" if roles.weight(key) else outside
        found = _made_outside(trouble, made_by, phase, (), roles, [])
        return replace(found, by=by, travel=(hop_of(blame.op), *travel), hidden=hidden)
    into_weights = _writes_weights(blame.op, path, roles) or _made_to_be_saved(blame.op, trouble)
    if blame.outside is not None and blame.op.phase == "optimizer":
        if live is not None and live.held_by_the_optimizer(blame.outside.key):
            return _bad_state(blame.op, roles, travel, hidden)
        into_weights = True  # an earlier bad update, which was let through
    if blame.outside is not None and not (into_weights and not roles.weight(blame.outside.key)):
        found = _brought_in(trouble, blame.outside, live, roles, [], blame.op)
        return replace(found, by=by, travel=(hop_of(blame.op), *travel), hidden=hidden)
    op = blame.op
    phase = "weights" if into_weights else _phase(op, trouble, path, roles)
    if trouble.seen_in == "weights" and live is not None and _is_of_the_optimizer([op, *path], live):
        phase = "optimizer"
    birth = replace(birth_of(op, phase, roles), samples=_rows(op, phase, trouble))
    step = op.step if phase == "optimizer" else trouble.step
    notes = roles.said_of_own_writes([op, *path]) if phase == "forward" else []
    return Located(step, _kind(op), phase, birth, by, travel, hidden, notes, op.call, op)


def _is_of_the_optimizer(path: list[Op], live: LiveTracer) -> bool:
    """Whether the program itself has written it into what an optimizer keeps."""
    return any(live.held_by_the_optimizer(operand.key) for operand in written_by(path))


def _bad_state(op: Op, roles: Roles, travel: tuple[Hop, ...], hidden: tuple[Hidden, ...]) -> Located:
    """Of what an optimizer keeps: the update that read it, and spoiled the weights with it."""
    kind = kind_of([o.numbers for o in op.bad_inputs]) or "nan"
    birth = birth_of(op, "optimizer", roles)
    return Located(op.step, kind, "optimizer", birth, "live trace", travel, hidden, [], op.call, op)


def _kind(op: Op) -> str:
    """Of what the op made; not of what it was handed beside it."""
    if op.fresh is not None:
        return "nan" if op.fresh.nan else "inf"
    made = [numbers(op.output)] if op.output is not None else [o.numbers for o in op.outputs]
    return kind_of(made) or "nan"


def _rows(op: Op, phase: str, trouble: Trouble) -> tuple[int, ...]:
    """Which rows of the batch are bad: in what the op made, or, for bad data, in what the model was given."""
    of_a_weight = phase == "backward" and (op.node is None or op.node.endswith("AccumulateGrad"))
    if phase in ("weights", "optimizer") or of_a_weight:
        return ()
    given = bad_rows_of_batch(trouble.tape) if phase == "data" else ()
    if op.fresh is not None:
        given = ()
    return given or bad_rows(_made_by(op), trouble.tape, op.turns_inf_into_nan)


def _made_by(op: Op) -> torch.Tensor | None:
    """Its output, without the bad values that it was only handed."""
    if op.output is None or op.born is None or op.born.shape != op.output.shape:
        return op.output
    return torch.where(op.born, op.output, torch.zeros_like(op.output))


def _fewest_rows(tensor: torch.Tensor | None, trouble: Trouble) -> tuple[int, ...]:
    """The bad rows of the batch; where it was made of this tensor and all of them went bad on the way (a mean
    over the rows), those that were bad at first."""
    own, given = bad_rows(tensor, trouble.tape, folded=False), bad_rows_of_batch(trouble.tape)
    return own if own and set(own) < set(given) else given or own


def _writes_weights(op: Op, path: list[Op], roles: Roles) -> bool:
    """Whether the value came to the model as a weight: some op outside of it wrote it into one."""
    outside = [o for o in [op, *path] if not o.modules and o.phase in ("data", "loss", "forward")]
    return any(roles.weight(operand.key) for o in outside for operand in o.bad_outputs if not o.is_view)


def _made_to_be_saved(op: Op, trouble: Trouble) -> bool:
    """What the program's own code makes for a checkpoint are weights to be: a copy in half precision."""
    return trouble.seen_in == "checkpoint" and not op.modules and op.phase in ("data", "loss")


def _phase(op: Op, trouble: Trouble, path: list[Op], roles: Roles) -> str:
    if roles.is_part_of_a_model(op):
        return "forward"
    after_autograd = op.phase == "loss" and all(o.phase != "backward" for o in path)
    if trouble.seen_in == "gradients" and (op.phase == "data" or after_autograd):
        return "backward"  # somebody's own arithmetic on the gradients
    if op.phase != "data":
        return op.phase
    following = next((o for o in path if o.phase != "data"), None)
    return "loss" if following is not None and _is_beside_the_loss(op, following) else "data"


def _is_beside_the_loss(op: Op, reader: Op) -> bool:
    """Whether something was made for the loss alone: after the model's call, and no other one came between.
    Labels that are prepared between two models, or two micro-batches, are data."""
    return reader.phase == "loss" and op.after_root and (op.step, op.roots) == (reader.step, reader.roots)


def _brought_in(
    trouble: Trouble,
    operand: Operand,
    live: LiveTracer | None,
    roles: Roles,
    notes: list[str],
    reader: Op | None = None,
) -> Located:
    """A tensor that was bad before any traced op read it: a weight, the batch, a loaded file."""
    weight = roles.weight(operand.key)
    tensor = operand.value
    in_forward = reader is not None and (
        reader.phase in ("data", "forward", "loss") or bool(roles.argument_name(operand.key))
    )
    seen_in = "loss" if in_forward and trouble.seen_in == "gradients" else trouble.seen_in
    phase = "weights" if weight else {**SHOWN_IN_PHASE, "loss": "data"}.get(seen_in, "data")
    samples: tuple[int, ...] = ()
    if phase == "data":
        samples = _fewest_rows(tensor, trouble)
    op = _known_writer(tensor, live, weight is not None) or roles.origin(roles.in_the_program(operand.key))
    if op is not None:
        beside = reader is not None and _is_beside_the_loss(op, reader)
        if phase == "data" and (beside or op.phase == "loss"):
            phase, samples = "loss", ()
        return _made_outside(trouble, op, phase, samples, roles, notes)
    came = _arrival(tensor, live, trouble)
    stack = came or roles.last_write(roles.in_the_program(operand.key)) or _where_a_model_wrote(tensor, live)
    updated = _by_an_update(trouble, operand, weight, roles, notes) if stack is None and weight else None
    if updated is not None:
        return updated
    kept = roles.kept_since_before(tensor) if weight is None and came is None else None
    carried = None
    if kept is not None:
        op = roles.made_before(key_of(kept), reader)
        if op is not None:
            return _made_outside(trouble, op, op.phase, (), roles, notes)
        carried = call_that_made(key_of(kept), trouble)
    unnamed = kept is not None and not roles.argument_name(operand.key)
    unknown = phase == "data" and (unnamed or carried is not None)
    stack = stack or (None if carried is None else carried.stack)
    notes = [*notes, say("watch.kept_from_before")] if unknown else notes
    stack = stack or (() if phase == "weights" else roles.first_use(operand.key))
    name = weight.name if weight else roles.argument_name(operand.key) or _saved_as(operand.key, trouble)
    birth = birth_at(stack, None, weight.module if weight else None)
    if weight is not None:
        birth = replace(birth, within=path_within(weight.root, weight.module))
    birth = replace(birth, outputs=(replace(operand.numbers, name=name),), samples=samples)
    kind = kind_of([operand.numbers]) or "nan"
    return Located(trouble.step, kind, phase, birth, "replay", notes=list(notes), kept_since_before=unknown)


def _by_an_update(
    trouble: Trouble, operand: Operand, weight: Weight, roles: Roles, notes: list[str]
) -> Located | None:
    """Nobody else wrote this weight."""
    for update, said in updates_of(trouble, operand):
        op = update_made_again(update)
        if op is not None:
            notes = [*notes, say("watch.update_made_again"), *said]
            return replace(_made_outside(trouble, op, "optimizer", (), roles, notes), update=update)
        if keeps_something_bad(update, operand):
            birth = birth_at(update.stack, None, None)
            birth = replace(birth, outputs=(replace(operand.numbers, name=weight.name),))
            kind, notes = kind_of([operand.numbers]) or "nan", [*notes, *said]
            return Located(update.step, kind, "optimizer", birth, "replay", notes=notes, update=update)
    return None


def _saved_on_purpose(trouble: Trouble, found: Located) -> bool:
    """A state that the program itself has damaged, in so many words, before it saved it."""
    if trouble.seen_in != "checkpoint" or found.op is None:
        return False
    _, args, kwargs = found.op.call or (None, (), {})
    asked_for_nan = any(isinstance(v, float) and math.isnan(v) for v in (*args, *kwargs.values()))
    return asked_for_nan or written_down(found.op)


def _saved_as(key: int, trouble: Trouble) -> str | None:
    saved = trouble.sinks if trouble.seen_in == "checkpoint" else ()
    return next((name for name, tensor in saved if key_of(tensor) == key), None)


def _made_outside(
    trouble: Trouble, op: Op, phase: str, samples: tuple[int, ...], roles: Roles, notes: list[str]
) -> Located:
    """The op of the program's own code that made it is known."""
    if op.phase == "optimizer" or (phase == "weights" and op.modules and op.phase == "forward"):
        phase = op.phase
    elif phase in ("loss", "data") and roles.is_part_of_a_model(op):
        phase = "forward"
    birth = birth_of(op, phase, roles)
    birth = replace(birth, samples=samples or _rows(op, phase, trouble))
    step = op.step if phase == "optimizer" else trouble.step
    kind = kind_of([o.numbers for o in op.outputs]) or "nan" if op.fresh is None else _kind(op)
    return Located(step, kind, phase, birth, "replay", notes=list(notes), call=op.call, op=op)


def _arrival(tensor: torch.Tensor | None, live: LiveTracer | None, trouble: Trouble) -> Stack | None:
    """Where a tensor came in that no op made: a loader, numpy, a file."""
    if tensor is None:
        return None
    seen = live.tracer.arrivals.get(tensor) if live is not None else None
    noted = trouble.arrivals.get(tensor) if trouble.arrivals is not None else None
    return noted or seen


def _where_a_model_wrote(tensor: torch.Tensor | None, live: LiveTracer | None) -> Stack | None:
    index = live.writer_of(tensor) if live is not None and tensor is not None else None
    writer = live.tracer.trace.ops[index] if live is not None and index is not None else None
    return writer.stack if writer is not None and writer.modules else None


def _known_writer(tensor: torch.Tensor | None, live: LiveTracer | None, is_weight: bool = False) -> Op | None:
    """The op of the live trace that is to blame for what is in this memory; none where it was bad before any
    op wrote there, nor for a weight or a statistic that a model itself wrote, out of a batch that was bad."""
    index = live.writer_of(tensor) if live is not None and tensor is not None else None
    if live is None or tensor is None or index is None:
        return None
    blame, writer = first_harmful(live.tracer.trace, [index]), live.tracer.trace.ops[index]
    if blame is not None and is_weight and writer.modules and blame.op.phase == "data":
        return None
    outside = None if blame is None else blame.outside
    if outside is not None and (outside.key == key_of(tensor) or not is_weight):
        return None  # the op has only handed it on
    return writer if blame is None else blame.op
