"""`with nanwatch.trace() as found:` the op tracer by itself, around any piece of code."""

from __future__ import annotations

import sys
from types import TracebackType

from nanwatch.messages import say
from nanwatch.records import Birth, Incident
from nanwatch.replay.blame import Blame, first_harmful
from nanwatch.replay.located_by_trace import located_by_trace
from nanwatch.replay.tracer import OpTracer
from nanwatch.show import terminal
from nanwatch.watching.module_calls import ModuleCalls, Scope
from nanwatch.watching.shield import warn
from nanwatch.watching.worker_threads import WorkerThreads


class Traced:
    """What the tracer saw. `incident` and `birth` are None when every value stayed finite."""

    def __init__(self, quiet: bool = False) -> None:
        self.incident: Incident | None = None
        self._quiet = quiet
        self._scope = Scope()
        self._calls = ModuleCalls()
        self._workers = WorkerThreads()
        self._tracer = OpTracer(self._scope)

    @property
    def birth(self) -> Birth | None:
        return None if self.incident is None else self.incident.birth

    def __enter__(self) -> Traced:
        self._calls.install()
        self._calls.handler = self._scope
        self._workers.install()
        self._tracer.phase = "forward"
        self._tracer.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._tracer.__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
        self._workers.uninstall()
        self._calls.uninstall()
        blame = self._blame()
        if blame is not None:
            self.incident = located_by_trace(self._tracer, blame)
        if self._quiet:
            return
        if self.incident is not None:
            terminal.write(terminal.render(self.incident, None), sys.stderr)
        else:
            warn(say("trace.all_finite"))

    def _blame(self) -> Blame | None:
        """What is still there and bad comes first; then what was born and hidden again."""
        trace = self._tracer.trace
        alive = [index for _, index in self._tracer.writers.alive()]
        living = [i for i in alive if any(not op.deliberate for op in trace.ancestors([i]))]
        if living:
            return first_harmful(trace, living)
        born = [op for op in trace.ops.values() if op.makes_nan or (op.makes_inf and not op.deliberate)]
        return Blame(born[0]) if born else None


def trace(quiet: bool = False) -> Traced:
    """Trace every op in the block; afterwards say which made the first NaN or Inf.

    with nanwatch.trace() as found:
        loss = criterion(model(x), y)
        loss.backward()
    found.birth     # op, line, module, numbers of its inputs; None if all was finite
    """
    return Traced(quiet)
