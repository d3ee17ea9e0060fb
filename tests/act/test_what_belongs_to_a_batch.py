"""A skipped step takes back what was done for its batch, and nothing that a program did between two updates:
validation, measuring, averages of the weights."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam

sys.path.insert(0, str(Path(__file__).parents[1] / "watching"))

from small_training import assert_same, state_of
from test_skip import BAD, assert_skipped_is_never_came, batches, network

import nanwatch


class Training:
    """One that does something else between its steps, too."""

    def __init__(self) -> None:
        self.model = self.make()
        self.optimizer: torch.optim.Optimizer = Adam(self.model.parameters(), lr=0.01)

    def make(self) -> nn.Module:
        return network()

    def after(self, x: Tensor, out: Tensor) -> None: ...

    def kept(self) -> list[Any]:
        return []

    def run(self, xs: Iterator[Tensor]) -> list[Any]:
        for x in xs:
            if x.isfinite().all():
                self.between()
            self.model.train()
            self.optimizer.zero_grad()
            out = self.model(x)
            out.square().mean().backward()
            self.optimizer.step()
            self.after(x, out.detach())
        return [*state_of(self.model, self.optimizer), self.kept(), torch.get_rng_state()]

    def between(self) -> None:
        """Before a good batch."""


class Measure(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.calls = 0

    def forward(self, out: Tensor) -> None:
        self.calls += 1
        self.total += out.abs().sum()


class ValidatesFirst(Training):
    """Before the bad batch, and draws from torch's generator after it, as a loader that shuffles does."""

    def run(self, xs: Iterator[Tensor]) -> list[Any]:
        self.orders: list[Tensor] = []
        every = list(xs)
        done = super().run(iter(every[:BAD]))
        self.model.eval()
        with torch.no_grad():
            self.model(torch.ones(3, 4))
        self.orders.append(torch.randperm(20))
        return [done, super().run(iter(every[BAD:])), self.orders]


class MeasuresAfterwards(Training):
    def __init__(self) -> None:
        super().__init__()
        self.measure = Measure()

    def after(self, x: Tensor, out: Tensor) -> None:
        if out.isfinite().all():
            self.measure(out)

    def kept(self) -> list[Any]:
        return [self.measure.calls, self.measure.total.clone()]


class MeasuresInTheStep(MeasuresAfterwards):
    """For the batch: taken back."""

    def after(self, x: Tensor, out: Tensor) -> None: ...

    def run(self, xs: Iterator[Tensor]) -> list[Any]:
        for x in xs:
            self.optimizer.zero_grad()
            out = self.model(x)
            self.measure(out.detach())
            out.square().mean().backward()
            self.optimizer.step()
        return [*state_of(self.model, self.optimizer), self.kept()]


class AsksTheModelAgain(Training):
    """With BatchNorm's statistics collected, after a good update."""

    def after(self, x: Tensor, out: Tensor) -> None:
        if out.isfinite().all():
            with torch.no_grad():
                self.model(x)


class CountsItsCalls(Training):
    """Ten calls for each update, as one that plays before it learns."""

    def make(self) -> nn.Module:
        class Player(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                torch.manual_seed(0)
                self.linear, self.calls = nn.Linear(4, 1), 0

            def forward(self, x: Tensor) -> Tensor:
                self.calls += 1
                out: Tensor = self.linear(x)
                return out

        return Player()

    def between(self) -> None:
        with torch.no_grad():
            for number in range(10):
                self.model(torch.full((1, 4), float(number)))

    def kept(self) -> list[Any]:
        return [self.model.calls]


class Average(nn.Module):
    """Of the weights, brought up to date by a call, or by a method; it warms up by its own count."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))
        self.shadow = copy.deepcopy(model)

    def forward(self, model: nn.Module) -> None:
        self.update(model)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        self.updates += 1
        decay = min(0.99, (1 + self.updates.item()) / (10 + self.updates.item()))
        for mine, other in zip(self.shadow.parameters(), model.parameters(), strict=True):
            mine.mul_(decay).add_(other, alpha=1 - decay)


class AverageByCall(Training):
    def __init__(self) -> None:
        super().__init__()
        self.average = Average(self.model)

    def after(self, x: Tensor, out: Tensor) -> None:
        self.average(self.model)

    def kept(self) -> list[Any]:
        return state_of(self.average)


class AverageByMethod(AverageByCall):
    def after(self, x: Tensor, out: Tensor) -> None:
        self.average.update(self.model)


class AverageInAVectorEach(Training):
    def __init__(self) -> None:
        super().__init__()
        self.averages = [p.detach().flatten().clone() for p in self.model.parameters()]

    def after(self, x: Tensor, out: Tensor) -> None:
        with torch.no_grad():
            for average, p in zip(self.averages, self.model.parameters(), strict=True):
                average.lerp_(p.flatten(), 0.1)

    def kept(self) -> list[Any]:
        return list(self.averages)


class AverageOfStatistics(Training):
    """Of a shape that no weight has."""

    def make(self) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5, affine=False), nn.Linear(5, 1))

    def __init__(self) -> None:
        super().__init__()
        self.average = self.model[1].running_var.clone()  # type: ignore[index]

    def after(self, x: Tensor, out: Tensor) -> None:
        self.average.lerp_(self.model[1].running_var, 0.1)  # type: ignore[index]

    def kept(self) -> list[Any]:
        return [self.average.clone()]


class MomentumEncoder(Training):
    """A part of the model that follows another part; the optimizer was given the parameters of both."""

    def make(self) -> nn.Module:
        class Two(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                torch.manual_seed(0)
                self.learns, self.follows = nn.Linear(4, 3), nn.Linear(4, 3).requires_grad_(False)

            def forward(self, x: Tensor) -> Tensor:
                out: Tensor = self.learns(x) - self.follows(x)
                return out

        return Two()

    def after(self, x: Tensor, out: Tensor) -> None:
        with torch.no_grad():
            for mine, other in zip(
                self.model.follows.parameters(), self.model.learns.parameters(), strict=True
            ):
                mine.mul_(0.9).add_(other, alpha=0.1)


class Normaliser(nn.Module):
    """Collects, and returns nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> None:
        self.mean.lerp_(x.mean(0), 0.1)


class CollectsFirst(Training):
    """For the batch, in calls whose results the loss does not come of, or by ways that nobody can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.normaliser, self.teacher = Normaliser(), network(dropout=False)

    def run(self, xs: Iterator[Tensor]) -> list[Any]:
        for x in xs:
            with torch.no_grad():
                self.normaliser(x)
                aim = torch.from_numpy(self.teacher(x.nan_to_num()).numpy().copy())
            self.optimizer.zero_grad()
            (self.model(x - self.normaliser.mean) - aim).square().mean().backward()
            self.optimizer.step()
        return [*state_of(self.model, self.optimizer, self.normaliser, self.teacher), torch.get_rng_state()]


class EncodesFirst(Training):
    """With gradients, though they go nowhere: only plain numbers are handed on."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = network(dropout=False)

    def run(self, xs: Iterator[Tensor]) -> list[Any]:
        for x in xs:
            features = torch.tensor(self.encoder(x).tolist()).expand(-1, 4)
            self.optimizer.zero_grad()
            self.model(features).square().mean().backward()
            self.optimizer.step()
        return [*state_of(self.model, self.optimizer, self.encoder)]


class Penalty(nn.Module):
    """On a weight, with a memory of its own."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros_like(weight))

    def forward(self, weight: Tensor) -> Tensor:
        self.seen.lerp_(weight.detach(), 0.5)
        return (weight * self.seen.clone()).square().sum()


class PenaltyFirst(Training):
    """The first call after a bad step is given nothing but a weight, and is of the next step."""

    def __init__(self) -> None:
        super().__init__()
        self.penalty = Penalty(self.model[0].weight)  # type: ignore[index]

    def run(self, xs: Iterator[Tensor]) -> list[Any]:
        for x in xs:
            self.optimizer.zero_grad()
            penalty = self.penalty(self.model[0].weight)  # type: ignore[index]
            (self.model(x).square().mean() + penalty).backward()
            self.optimizer.step()
        return state_of(self.model, self.optimizer, self.penalty)


class PenaltyApart(PenaltyFirst):
    """With a backward of its own: not a micro-batch that could be kept."""

    def run(self, xs: Iterator[Tensor]) -> list[Any]:
        for x in xs:
            self.optimizer.zero_grad()
            self.penalty(self.model[0].weight).backward()  # type: ignore[index]
            self.model(x).square().mean().backward()
            self.optimizer.step()
        return state_of(self.model, self.optimizer, self.penalty)


class ByEpochs(Training):
    """Right after the bad batch an epoch ends: weights are counted, kept, swapped with their average."""

    def __init__(self) -> None:
        super().__init__()
        self.average = [p.detach().clone() for p in self.model.parameters()]
        self.best = [torch.zeros_like(p) for p in self.model.parameters()]
        self.norms, self.epochs = torch.zeros(1), torch.zeros(1)

    @torch.no_grad()
    def swap(self) -> None:
        for average, p in zip(self.average, self.model.parameters(), strict=True):
            kept = p.clone()
            p.copy_(average)
            average.copy_(kept)

    @torch.no_grad()
    def after(self, x: Tensor, out: Tensor) -> None:
        for average, p in zip(self.average, self.model.parameters(), strict=True):
            average.lerp_(p, 0.1)

    def run(self, xs: Iterator[Tensor]) -> list[Any]:
        every = list(xs)
        of_first = BAD + (len(every) == 7)
        done = [super().run(iter(every[:of_first]))]
        with torch.no_grad():
            self.norms += self.model[0].weight.norm()  # type: ignore[index]
            self.epochs += 1
            torch._foreach_copy_(self.best, list(self.model.parameters()))
        self.swap()
        self.model.eval()(torch.ones(2, 4))
        self.swap()
        done.append(super().run(iter(every[of_first:])))
        return [done, self.average, self.best, self.norms, self.epochs]


class WarmedUp(Training):
    """With zeros, which leave the statistics of a layer without a bias what they are."""

    def make(self) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5), nn.Linear(5, 1))

    def run(self, xs: Iterator[Tensor]) -> list[Any]:
        with torch.no_grad():
            self.model(torch.zeros(6, 4))
        return super().run(xs)


TRAININGS = [
    CollectsFirst,
    EncodesFirst,
    PenaltyFirst,
    PenaltyApart,
    ByEpochs,
    WarmedUp,
    ValidatesFirst,
    MeasuresAfterwards,
    MeasuresInTheStep,
    AsksTheModelAgain,
    CountsItsCalls,
    AverageByCall,
    AverageByMethod,
    AverageInAVectorEach,
    AverageOfStatistics,
    MomentumEncoder,
]


@pytest.mark.parametrize("audit", ["no audit", "audit"])
@pytest.mark.parametrize("kind", TRAININGS)
def test_only_what_was_done_for_the_batch_is_taken_back(
    tmp_path: Path, kind: type[Training], audit: str
) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        return kind().run(batches(bad, left_out))

    assert_skipped_is_never_came(play, tmp_path, audit)


def test_a_normal_number_that_numpy_has_in_store(tmp_path: Path) -> None:
    """It makes two at a time."""

    def play(bad: int | None, left_out: int | None) -> list[Any]:
        numpy.random.seed(0)
        drawn: list[float] = []

        class Draws(Training):
            def between(self) -> None:
                drawn.append(float(numpy.random.randn()))

        return [Draws().run(batches(bad, left_out)), drawn]

    assert_skipped_is_never_came(play, tmp_path)


def test_a_graph_that_is_differentiated_after_the_bad_step(tmp_path: Path) -> None:
    """It has saved a tensor that the model keeps in a dict and changes in each call."""

    class Codes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body, self.one, self.other = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 1)
            self.codes = {"first": torch.ones(8)}

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.body(x)
            with torch.no_grad():
                self.codes["first"].mul_(0.9).add_(out.nan_to_num().mean(0), alpha=0.1)
            return out * self.codes["first"]

    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = Codes()
        first, second = SGD(model.one.parameters(), lr=0.01), SGD(model.other.parameters(), lr=0.01)
        for x in batches(bad, left_out):
            out = model(x)
            model.zero_grad()
            one, other = model.one(out).square().mean(), model.other(out).square().mean()
            one.backward(retain_graph=True)
            first.step()
            other.backward()
            second.step()
        return [*state_of(model, first, second), model.codes["first"]]

    with nanwatch.watch(policy="skip", dir=tmp_path, explain=False) as session:
        found = play(BAD, None)
    assert [i.action for i in session.incidents] == ["skipped", "skipped"]  # one for each loss
    assert_same(found, play(None, BAD))
