"""What lies in memory that nobody has written yet is nobody's number: it brings a model no nearer to the
limit of its dtype. What other ranks write there is theirs, and no fault of the line that allocated it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import distributed

from nanwatch.replay.blame import first_harmful
from nanwatch.replay.tracer import OpTracer
from nanwatch.watching.module_calls import Scope

HUGE = 1e38


@pytest.fixture
def one_rank() -> Iterator[None]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def found(value: float = HUGE) -> torch.Tensor:
    """Memory as it may be found; the write is none of torch's."""
    memory = torch.empty(8)
    memory.numpy()[:] = value
    return memory


def gathered(values: torch.Tensor, late: bool = False) -> torch.Tensor:
    """Of all ranks; `late`: as if it had not come yet."""
    memory = found()
    work = distributed.all_gather_into_tensor(memory, values, async_op=True)
    work.wait()
    if late:
        memory.numpy()[:] = HUGE
    return memory


def peak(made_by: Callable[[], object]) -> float:
    tracer = OpTracer(Scope())
    tracer.phase = "forward"
    with tracer:
        made_by()
    return max(tracer.peaks.shares.values(), default=0.0) * torch.finfo(torch.float32).max


@pytest.mark.parametrize(
    "read", [torch.clone, torch.neg, lambda t: t[2:4] * 1, lambda t: t[2:4].mul_(1), lambda t: t[:2].zero_()]
)
def test_what_is_found_there_is_no_peak(read: Callable[[torch.Tensor], object]) -> None:
    assert peak(lambda: read(found())) == 0.0


def test_what_is_written_there_is_one() -> None:
    assert peak(lambda: found()[:4].copy_(torch.full((4,), 2.0))) == pytest.approx(2.0)
    assert peak(lambda: torch.add(torch.ones(8), 2.0, out=found())) == pytest.approx(3.0)
    assert peak(lambda: found().fill_(3.0).mul_(2.0)) == pytest.approx(6.0)


@pytest.mark.usefixtures("one_rank")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_other_ranks_are_still_sending_is_none() -> None:
    ones = torch.ones(8)
    assert peak(lambda: gathered(ones, late=True)) == 0.0
    assert peak(lambda: gathered(ones) * 2.0) == pytest.approx(2.0)


@pytest.mark.usefixtures("one_rank")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_nan_of_another_rank_came_in_with_the_collective() -> None:
    with OpTracer(Scope()) as tracer:
        memory = gathered(torch.ones(8))
        memory.numpy()[:] = float("nan")
        memory.sum()
    blame = first_harmful(tracer.trace, [max(tracer.trace.ops)])
    assert blame is not None and blame.outside is not None
    stack = tracer.arrivals.get(memory)
    assert stack is not None and "gathered" in {code.co_name for code, _ in stack}


@pytest.mark.usefixtures("one_rank")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_nan_that_this_rank_has_sent_is_followed_back() -> None:
    with OpTracer(Scope()) as tracer:
        gathered(torch.log(torch.full((8,), -1.0))).sum()
    blame = first_harmful(tracer.trace, [max(tracer.trace.ops)])
    assert blame is not None and (blame.op.name, blame.outside) == ("aten.log.default", None)
