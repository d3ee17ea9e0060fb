"""Work that a model hands to a pool of threads: traced there, with the module and the line it belongs to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import nanwatch
from nanwatch.watching.tasks_under_way import recent_tasks
from nanwatch.watching.worker_threads import has_pools, one_at_a_time, were_handed_over

Watch = Callable[..., nanwatch.Session]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as running:
        yield running


def modes_here() -> int:
    return torch._C._len_torch_dispatch_stack() + torch._C._len_torch_function_stack()


class Experts(nn.Module):
    """Two halves of the batch, each computed by a worker."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        super().__init__()
        self.scale = nn.Linear(4, 4)
        self.pool = pool

    def work(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(self.scale(x).square() - 1e6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat(list(self.pool.map(self.work, x.chunk(2))))


class Root(nn.Module):
    def __init__(self, pool: ThreadPoolExecutor) -> None:
        super().__init__()
        self.experts = Experts(pool)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.experts(x) * 2


@pytest.mark.parametrize("audit", [{}, {"audit_seconds": 0.0, "audit_share": 0.0}], ids=["live", "replay"])
def test_a_birth_in_a_worker_is_named(
    watch: Watch, pool: ThreadPoolExecutor, audit: dict[str, float]
) -> None:
    watch(explain=False, **audit)
    with torch.no_grad(), pytest.raises(nanwatch.NonFiniteError) as stopped:
        Root(pool)(torch.ones(4, 4))
    incident = stopped.value.incident
    assert (incident.phase, incident.birth.op, incident.birth.module) == (
        "forward",
        "aten.log.default",
        "experts",
    )
    assert incident.birth.code == "return torch.log(self.scale(x).square() - 1e6)"
    functions = [frame.function for frame in incident.birth.stack if frame.file == __file__]
    assert functions[-4:] == ["test_a_birth_in_a_worker_is_named", "forward", "forward", "work"]


def test_a_trace_follows_into_a_pool_and_leaves_it(pool: ThreadPoolExecutor) -> None:
    submit = ThreadPoolExecutor.submit
    with nanwatch.trace(quiet=True) as found:
        inside = pool.submit(modes_here)
        pool.submit(torch.log, torch.zeros(2) - 1).result()
    assert inside.result() == 1
    assert found.birth is not None and found.birth.op == "aten.log.default"
    assert ThreadPoolExecutor.submit is submit
    assert {pool.submit(modes_here).result() for _ in range(8)} == {0}


def test_a_mode_of_the_program_stays_in_its_thread(pool: ThreadPoolExecutor) -> None:
    class Counting(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Counting.seen += 1
            return function(*args, **(kwargs or {}))

    x = torch.ones(2)
    with nanwatch.trace(quiet=True), Counting():
        pool.submit(torch.exp, x).result()
    assert Counting.seen == 0


def test_what_the_program_does_beside_its_models_is_left_alone(
    watch: Watch, pool: ThreadPoolExecutor
) -> None:
    watch()
    assert pool.submit(modes_here).result() == 0


def test_what_was_handed_over_under_an_earlier_watch_is_forgotten(
    watch: Watch, pool: ThreadPoolExecutor
) -> None:
    with watch():
        with nanwatch.trace(quiet=True):
            pool.submit(modes_here).result()
        with nanwatch.trace(quiet=True):
            assert has_pools() and were_handed_over()  # a trace inside it begins nothing anew
    with watch():
        assert not has_pools() and not were_handed_over()
        pool.submit(modes_here).result()
        assert has_pools() and not were_handed_over()


def test_tasks_in_turn_never_overlap(pool: ThreadPoolExecutor) -> None:
    running, most = [], []

    def work(pause: threading.Event) -> None:
        running.append(1)
        most.append(len(running))
        pause.wait(0.02)
        running.pop()

    never = threading.Event()
    with nanwatch.trace(quiet=True), one_at_a_time() as turns:
        list(pool.map(work, [never] * 6))
    assert max(most) == 1 and turns.kept and len(turns.threads) == 2


def test_a_task_that_waits_for_another_is_let_in(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nanwatch.watching.worker_threads.LONGEST_WAIT", 0.05)
    both = threading.Barrier(2)
    with nanwatch.trace(quiet=True), one_at_a_time() as turns:
        assert sorted(pool.map(lambda _: both.wait(5), range(2))) == [0, 1]
    assert not turns.kept


def test_stages_that_workers_trace_by_themselves(pool: ThreadPoolExecutor) -> None:
    """One line per stage, in an engine's own threads, side by side: each finds its own."""
    together = threading.Barrier(2)
    layer = nn.Linear(2, 2)

    def stage(bad: bool) -> str | None:
        together.wait(5)
        with torch.no_grad(), nanwatch.trace(quiet=True) as found:
            x = layer(torch.ones(3, 2)).abs()
            torch.log(x - 1e6) if bad else torch.log(x + 1)
        return None if found.birth is None else found.birth.op

    for _ in range(10):
        assert list(pool.map(stage, [True, False])) == ["aten.log.default", None]
    assert modes_here() == 0 and torch.log(torch.zeros(1)).isinf()


def test_at_once_a_task_is_done_before_its_future_is_there(pool: ThreadPoolExecutor) -> None:
    with one_at_a_time(at_once=True) as turns, nanwatch.trace(quiet=True):
        futures = [pool.submit(threading.Event().wait, 0.05) for _ in range(2)]
        assert all(future.done() for future in futures)
    assert turns.kept


def test_what_a_task_could_reach_and_what_it_returned_is_known(
    watch: Watch, pool: ThreadPoolExecutor
) -> None:
    watch()
    given, may_end = torch.zeros(2), threading.Event()

    def work(tensor: torch.Tensor) -> torch.Tensor:
        may_end.wait()
        return tensor + 1

    future = pool.submit(work, given)
    given.add_(1.0)
    (reached,) = recent_tasks()[0].reached
    assert reached.tensor() is given and (reached.version, reached.at_end) == (0, None)
    may_end.set()
    made = future.result()
    given.add_(1.0)
    assert reached.at_end == 1
    assert [reference() for reference in recent_tasks()[0].made] == [made] and made.tolist() == [2.0, 2.0]
