"""Models that other threads call, as the workers of a server do: judged by what they return."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import nanwatch

Watch = Callable[..., nanwatch.Session]


class Ranker(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 8)
        self.norm = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        known = (ids > 0).float()
        pooled = (self.embed(ids) * known[..., None]).sum(1) / known.sum(1, keepdim=True)
        return self.out(self.norm(pooled))


def requests(bad: int | None) -> list[torch.Tensor]:
    made = [torch.randint(1, 40, (3, 5)) for _ in range(6)]
    if bad is not None:
        made[bad][1] = 0
    return made


@torch.inference_mode()
def answer(model: nn.Module, request: torch.Tensor) -> list[float]:
    scores: list[float] = model(request).flatten().tolist()
    return scores


def test_a_bad_answer_of_a_pool_is_located_and_raised_where_the_answer_is_taken(watch: Watch) -> None:
    model = Ranker().eval()
    with watch() as session, ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(answer, model, request) for request in requests(bad=3)]
        with pytest.raises(nanwatch.NonFiniteError):
            for future in waiting:
                future.result()
    (incident,) = session.incidents
    assert (incident.phase, incident.birth.op, incident.birth.module) == ("forward", "aten.div.Tensor", "")
    assert incident.birth.samples == (1,)
    assert incident.cause.id == "empty-selection"


def test_a_coroutine_that_lets_a_thread_call_the_model(watch: Watch) -> None:
    model = Ranker().eval()

    async def serve() -> None:
        for request in requests(bad=2):
            await asyncio.to_thread(answer, model, request)

    with watch() as session, pytest.raises(nanwatch.NonFiniteError):
        asyncio.run(serve())
    (incident,) = session.incidents
    assert incident.step == 2


def test_good_answers_are_the_same_bits_and_leave_nothing_behind(watch: Watch) -> None:
    model = Ranker().eval()
    asked = requests(bad=None)
    plain = [answer(model, request) for request in asked]
    with watch() as session, ThreadPoolExecutor(2) as pool:
        watched = list(pool.map(lambda request: answer(model, request), asked))
    assert watched == plain
    assert not session.incidents and not session.watcher.shield.broken


def test_under_observe_the_threads_go_on(watch: Watch) -> None:
    model = Ranker().eval()
    with watch(policy="observe") as session, ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda request: answer(model, request), requests(bad=0)))
    assert len(answers) == 6 and answers[0][1] != answers[0][1]
    assert len(session.incidents) == 1


def test_a_model_that_is_trained_elsewhere_is_still_said_to_be_unwatched(
    watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Ranker()
    with watch() as session, ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: model(requests(bad=None)[0]).sum().backward()).result()
    assert "another thread" in capsys.readouterr().err
    assert not session.incidents
