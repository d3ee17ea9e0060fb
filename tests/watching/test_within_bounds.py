"""Between two updates a program may do what it likes: the tape holds little more than the program does."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nanwatch
from nanwatch.errors import NonFiniteError
from nanwatch.watching import tape as tapes
from nanwatch.watching import within_bounds
from nanwatch.watching.recorder import Recorder
from nanwatch.watching.storages import Storages

Watch = Callable[..., nanwatch.Session]


class Noted(nn.Module):
    """Notes what it was given and what it made, without holding it."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, width)
        self.given: list[weakref.ref[Tensor]] = []
        self.made: list[weakref.ref[Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layer(x)
        self.given.append(weakref.ref(x))
        self.made.append(weakref.ref(made))
        return made


def living(references: list[weakref.ref[Tensor]]) -> int:
    return sum(reference() is not None for reference in references)


@pytest.fixture
def trained(watch: Watch) -> Iterator[tuple[Noted, torch.optim.Optimizer]]:
    model = Noted()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch(model, optimizer, mode="host", audit_seconds=0.0, audit_share=0.0)
    for step in range(3):
        optimizer.zero_grad()
        model(batch(step)).square().mean().backward()
        optimizer.step()
    model.given.clear()
    model.made.clear()
    yield model, optimizer


def batch(step: int, **options: Any) -> Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(step), **options)


Trained = tuple[Noted, torch.optim.Optimizer]


def test_what_micro_batches_made_is_let_go_and_their_batches_stay(trained: Trained) -> None:
    model, _ = trained
    for step in range(40):
        model(batch(step)).square().mean().backward()
    assert living(model.made) <= 2
    assert living(model.given) == 40


def test_a_graph_that_the_program_retains_by_mistake_is_not_held(trained: Trained) -> None:
    model, _ = trained
    for step in range(40):
        model(batch(step)).square().mean().backward(retain_graph=True)
    assert living(model.made) <= 2


def test_what_the_program_collected_in_a_list_for_one_call_is_let_go(trained: Trained) -> None:
    model, _ = trained
    for step in range(40):
        torch.stack([model(batch(step)), model(batch(step))]).mean().backward()
    assert living(model.made) <= 4


@pytest.mark.parametrize("batches", [40, 400])
def test_a_validation_with_gradients_on_holds_a_few_batches(trained: Trained, batches: int) -> None:
    model, _ = trained
    for step in range(batches):
        loss = model(batch(step)).square().mean()
        loss.item()
    assert living(model.made) <= 2
    assert living(model.given) <= 5


def test_derivatives_without_an_update_hold_no_more_than_is_allowed(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(within_bounds, "PARTS_SHARE", 0.0)
    model, _ = trained
    for step in range(100):
        x = batch(step, requires_grad=True)
        torch.autograd.grad(model(x).logsumexp(1).sum(), x)
    assert living(model.made) <= 4
    assert living(model.given) <= 8
    for step in range(100):
        model(batch(step)).logsumexp(1).sum().backward()
    assert living(model.given) <= 8


def test_what_the_program_still_holds_can_be_differentiated_and_located(trained: Trained) -> None:
    model, optimizer = trained
    held = [model(batch(step)) + 1 for step in range(50)]  # of which autograd saves nothing
    with pytest.raises(NonFiniteError) as caught:
        torch.log(torch.stack(held).sum() * 0 - 1).backward()
        optimizer.step()
    assert "log" in str(caught.value)


def test_a_bad_micro_batch_is_left_out_when_others_were_let_go(watch: Watch) -> None:
    """And the update is that of a program that never had it."""
    weights = []
    for bad in (None, 2):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        session = watch(model, optimizer, policy="skip", mode="host") if bad is not None else None
        for step in range(6):
            if bad is None and step == 2:
                continue
            x = batch(step)
            loss = model(x * float("nan") if step == bad else x).square().mean()
            loss.backward()
        optimizer.step()
        weights.append([t.clone() for t in (*model.parameters(), *model.buffers())])
        if session is not None:
            session.close()
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_where_the_oldest_are_no_longer_there_the_whole_group_is_left_out(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(within_bounds, "PARTS_SHARE", 0.0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch(model, optimizer, policy="skip", mode="host")
    before = [t.clone() for t in (*model.parameters(), *model.buffers())]
    for step in range(12):
        x = batch(step)
        model(x * float("nan") if step == 10 else x).square().mean().backward()
    optimizer.step()
    after = [*model.parameters(), *model.buffers()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_facts_about_freed_memory_are_forgotten_in_the_middle_of_a_step() -> None:
    facts: Storages[int] = Storages()
    for number in range(1000):
        facts.put(torch.zeros(8), number)
    assert len(facts._facts) <= 64


# How much work each call is


class Counting(list[Any]):
    """Counts how often an entry is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            Counting.looks += 1
            yield item


def looks_of_a_rollout(watch: Watch, monkeypatch: pytest.MonkeyPatch, length: int) -> int:
    """A policy with gradients, a critic without, and a buffer that is written in place."""
    made = tapes.Tape.__init__

    def counted(self: tapes.Tape, step: int) -> None:
        made(self, step)
        self.entries = Counting()

    with monkeypatch.context() as patched:
        patched.setattr(tapes.Tape, "__init__", counted)
        policy, critic = nn.Linear(4, 2), nn.Linear(4, 1)
        optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
        session = watch(policy, optimizer, mode="host", audit_seconds=0.0, audit_share=0.0)
        state, seen, chosen = torch.zeros(4), torch.zeros(length, 4), []
        Counting.looks = 0
        for step in range(length):
            seen[step] = state
            chosen.append(policy(state).log_softmax(-1)[0])
            with torch.no_grad():
                critic(state)
            state = state * 0.9 + 0.1
        looks = Counting.looks
        torch.stack(chosen).mean().backward()
        optimizer.step()
        session.close()
    return looks


def test_a_call_costs_the_same_however_long_the_tape(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    short = looks_of_a_rollout(watch, monkeypatch, 100)
    long = looks_of_a_rollout(watch, monkeypatch, 800)
    assert long <= 16 * short  # 64 times, if every call looked at all before it


def test_many_calls_that_lead_to_one_backward_are_soon_left_in_peace(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer = trained
    swept: list[Any] = []
    keep = Recorder._keep_bounds
    monkeypatch.setattr(Recorder, "_keep_bounds", lambda self, work: (swept.append(work), keep(self, work)))
    for step in range(4):
        optimizer.zero_grad()
        sum((model(batch(step)).mean() for _ in range(6)), torch.zeros(())).backward()
        optimizer.step()
        if not step:
            swept.clear()
    assert swept == []


def test_a_fit_by_hand_after_a_training_holds_a_bounded_tape(
    trained: tuple[Noted, torch.optim.Optimizer], watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing ends its steps for us: no optimizer, no model."""
    monkeypatch.setattr(tapes, "DATA_ENTRIES", 40)
    monkeypatch.setattr(within_bounds, "PARTS_ENTRIES", 80)
    session = watch(mode="host", audit_seconds=0.0, audit_share=0.0)
    model, optimizer = trained
    model(batch(3)).square().mean().backward()
    optimizer.step()
    w, x = torch.zeros(3, requires_grad=True), torch.ones(3)
    longest = 0
    for _ in range(60):
        ((x * w).sum() - 1).square().backward()
        with torch.no_grad():
            w.sub_(0.01 * w.grad)
            w.grad.zero_()
        longest = max(longest, len(session.watcher.recorder.tape.entries))
    assert 40 < longest < 120


def test_records_among_the_arguments_are_passed_over_and_tensors_behind_them_found() -> None:
    x, y = torch.ones(2), torch.zeros(3)
    looked_at = 0

    class Records(list):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            nonlocal looked_at
            for record in super().__iter__():
                looked_at += 1
                yield record

    records = Records({"name": str(i)} for i in range(50_000))
    assert tapes.tensors_in({"x": x, "records": records, "y": y}) == [x, y]
    assert looked_at < 2 * tapes.MOST_VISITED
    assert len(tapes.tensors_in([x] * 3000)) == 3000
