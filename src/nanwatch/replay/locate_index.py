"""From an exception to the op that was given an index outside its table."""

from __future__ import annotations

from dataclasses import replace

from nanwatch.replay.again import run_again
from nanwatch.replay.live import LiveTracer
from nanwatch.replay.located import Located, birth_at
from nanwatch.replay.out_of_range import OutOfRange
from nanwatch.replay.owners import module_path
from nanwatch.replay.samples import batch_size
from nanwatch.replay.tracer import OpTracer
from nanwatch.watching.module_calls import ModuleCalls, Scope
from nanwatch.watching.tape import Entry
from nanwatch.watching.trouble import Trouble


def locate_index(trouble: Trouble, calls: ModuleCalls, failing: Entry | None) -> Located | None:
    """None when no op was given such an index: a list of the program's own, or another error."""
    live = trouble.live if isinstance(trouble.live, LiveTracer) else None
    found = None if live is None else live.tracer.out_of_range
    by = "live trace"
    if found is None:
        by = "replay"
        found = _from_replay(trouble, calls) if failing is None else _of_call(failing)
    if found is None:
        return None
    outside = found.outside
    rows = outside.rows if outside.length == batch_size(trouble.tape) else ()
    birth = birth_at(found.stack, found.op, module_path(found.stack, found.modules))
    birth = replace(birth, inputs=found.inputs, samples=rows, arguments=found.arguments)
    return Located(trouble.step, "index", found.phase, birth, by, out_of_range=found)


def _from_replay(trouble: Trouble, calls: ModuleCalls) -> OutOfRange | None:
    return run_again(trouble.tape, trouble.earlier, calls).tracer.out_of_range


def _of_call(entry: Entry) -> OutOfRange | None:
    """A call outside any model fails again before it has done anything."""
    tracer = OpTracer(Scope())
    tracer.base = entry.stack
    try:
        with tracer:
            entry.call(*entry.args, **entry.kwargs)
    except Exception:
        return tracer.out_of_range
    return None
