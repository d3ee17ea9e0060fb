"""From an exception to the op that was given an index outside its table.

On a GPU the kernel stops with an assert. The error comes some ops or steps later, and nothing on that GPU can
be read any more. But what the program had brought there from the host is still on the host: the last steps
run again on the CPU, with stand-ins for all the rest, and the op that gets the index raises there and then.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from nanwatch.messages import say
from nanwatch.replay.again import Changes, run_again
from nanwatch.replay.cast_to_index import cast_behind
from nanwatch.replay.live import LiveTracer
from nanwatch.replay.locate import located_behind
from nanwatch.replay.located import Located, birth_at
from nanwatch.replay.on_cpu_instead import OnCpuWithStandIns, stand_in
from nanwatch.replay.out_of_range import OutOfRange
from nanwatch.replay.owners import module_path
from nanwatch.replay.samples import batch_size
from nanwatch.replay.tracer import OpTracer
from nanwatch.watching.module_calls import ModuleCalls, Scope
from nanwatch.watching.tape import Entry, Tape, tensors_in
from nanwatch.watching.trouble import Trouble


def locate_index(trouble: Trouble, calls: ModuleCalls, failing: Entry | None) -> Located | None:
    """None when no op was given such an index: a list of the program's own, or another error."""
    live = trouble.live if isinstance(trouble.live, LiveTracer) else None
    if live is not None and live.tracer.out_of_range is not None:
        return _of_tracer(live.tracer, trouble, "live trace")
    again = _from_replay(trouble, calls) if failing is None else _of_call(failing)
    return _of_tracer(again, trouble, "replay")


def _of_tracer(tracer: OpTracer, trouble: Trouble, by: str) -> Located | None:
    found = tracer.out_of_range
    if found is None:
        return None
    behind = located_behind(trouble, tracer, cast_behind(found, tracer), by)
    return _located(found, trouble.tape, by) if behind is None else behind


def locate_assert(trouble: Trouble, calls: ModuleCalls) -> Located | None:
    """The first op, of the steps that are remembered, that is given such an index."""
    tapes = [*trouble.earlier, trouble.tape]
    together = Tape(trouble.step)
    together.rebuild([_for_the_host(e) for tape in tapes for e in tape.entries if e.kind != "backward"])
    changes = Changes(around=OnCpuWithStandIns, outside=stand_in, call=_made_again)
    tracer = run_again(together, (), calls, changes=changes).tracer
    found = tracer.out_of_range
    if found is None:
        return None
    tape = next(tape for tape in tapes if any(entry.stack is tracer.base for entry in tape.entries))
    own = tuple(numbers for numbers in found.inputs if numbers.name == found.outside.name)
    located = _located(replace(found, inputs=own), tape, "replay")
    located.notes.append(say("watch.device_assert_found"))
    return located


def _for_the_host(entry: Entry) -> Entry:
    """Without what only the device could put back."""
    rng = None if entry.rng is None else replace(entry.rng, cuda=())
    moved = copy.copy(entry)
    moved.buffers, moved.rng = (), rng
    return moved


def _made_again(entry: Entry) -> Callable[..., Any]:
    """Also what only brings data to the device, or prepares it there: a replay takes that as it is."""
    on_device = entry.kind == "op" and any(not t.is_cpu for t in tensors_in(entry.outputs))
    return partial(entry.call) if on_device else entry.call


def _located(found: OutOfRange, tape: Tape, by: str) -> Located:
    outside = found.outside
    rows = outside.rows if outside.length == batch_size(tape) else ()
    birth = birth_at(found.stack, found.op, module_path(found.stack, found.modules))
    birth = replace(birth, inputs=found.inputs, samples=rows, arguments=found.arguments)
    return Located(tape.step, "index", found.phase, birth, by, out_of_range=found)


def _from_replay(trouble: Trouble, calls: ModuleCalls) -> OpTracer:
    return run_again(trouble.tape, trouble.earlier, calls).tracer


def _of_call(entry: Entry) -> OpTracer:
    """A call outside any model fails again before it has done anything."""
    tracer = OpTracer(Scope())
    tracer.base = entry.stack
    with contextlib.suppress(Exception), tracer:
        entry.call(*entry.args, **entry.kwargs)
    return tracer
