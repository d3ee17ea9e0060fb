"""The birth that a tracer by itself has seen, around any piece of code, without a step to run again."""

from __future__ import annotations

from dataclasses import replace

from nanwatch.records import Hidden, Incident
from nanwatch.replay.blame import Blame, hidden_births, way
from nanwatch.replay.located import birth_at, hop_of, kind_of
from nanwatch.replay.tracer import OpTracer


def located_by_trace(tracer: OpTracer, blame: Blame) -> Incident:
    """The birth that a tracer by itself has seen, as an incident."""
    op = blame.op
    born = blame.outside is None
    birth = birth_at(op.stack, op.name if born else None, op.module)
    inputs = tuple(o.numbers for o in op.inputs)
    outputs = tuple(o.numbers for o in (op.outputs if blame.outside is None else [blame.outside]))
    birth = replace(birth, inputs=inputs, outputs=outputs, arguments=op.arguments, node=op.node)
    sinks = [index for _, index in tracer.writers.alive()]
    return Incident(
        step=-1,
        rank=0,
        kind=kind_of(list(outputs)) or "nan",
        phase=op.phase if born else "data",
        birth=birth,
        action="observed",
        seen_in="trace",
        located_by="live trace",
        travel=tuple(hop_of(o) for o in way(tracer.trace, op.index, sinks) if not o.is_view),
        hidden=tuple(Hidden(hop_of(a), hop_of(b)) for a, b in hidden_births(tracer.trace, tracer.step)[:5]),
    )
