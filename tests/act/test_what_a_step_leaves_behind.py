"""A skipped step leaves nothing behind, wherever a program keeps its state, and takes nothing along that is
not its own."""

from __future__ import annotations

import copy
import random
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, lr_scheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parents[1] / "watching"))

from small_training import assert_same, state_of
from test_skip import assert_skipped_is_never_came, batches, network

import nanwatch

QUICK: dict[str, Any] = {"explain": False, "audit_seconds": 0.0, "audit_share": 0.0}


class Keeping(nn.Module):
    """A model whose calls change something that it keeps."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 1)
        self.prepare()

    def prepare(self) -> None: ...

    def take(self, x: Tensor) -> Any: ...

    def kept(self) -> list[Any]:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        extra = self.take(x)
        return self.linear(x) if extra is None else self.linear(x + 0.1 * extra)


class TheLastBatch(Keeping):
    """In the place of a buffer, by assignment."""

    def prepare(self) -> None:
        self.register_buffer("last", torch.zeros(6, 4))

    def take(self, x: Tensor) -> Tensor:
        before, self.last = self.last, x
        return before

    def kept(self) -> list[Any]:
        return [self.last]


class AGrowingBuffer(Keeping):
    def prepare(self) -> None:
        self.register_buffer("cache", torch.zeros(0, 4))

    def take(self, x: Tensor) -> None:
        self.cache = torch.cat([self.cache, x])

    def kept(self) -> list[Any]:
        return [self.cache]


class TensorsInAList(Keeping):
    def prepare(self) -> None:
        self.averages = [torch.zeros(4), torch.zeros(4)]

    def take(self, x: Tensor) -> Tensor:
        self.averages[0].mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return self.averages[0].clone()

    def kept(self) -> list[Any]:
        return list(self.averages)


class LayersInAList(Keeping):
    """Out of torch's sight."""

    def prepare(self) -> None:
        self.norms = [nn.BatchNorm1d(4)]

    def take(self, x: Tensor) -> Tensor:
        return self.norms[0](x).detach()

    def kept(self) -> list[Any]:
        return [t.clone() for t in self.norms[0].state_dict().values()]


class MadeByTheFirstCall(Keeping):
    def take(self, x: Tensor) -> None:
        if not hasattr(self, "seen"):
            self.seen: list[float] = []
            self.calls = 0
            self.register_buffer("mean", torch.zeros(4))
        self.seen.append(float(x.detach().sum()))
        self.calls += 1
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)

    def kept(self) -> list[Any]:
        return [list(self.seen), self.calls, self.mean.clone()]


class InOrder(Keeping):
    """The oldest goes first; what is used becomes the newest."""

    def prepare(self) -> None:
        self.cache: dict[int, int] = {}
        self.used: OrderedDict[str, int] = OrderedDict.fromkeys("abc", 0)
        self.calls = 0

    def take(self, x: Tensor) -> None:
        self.calls += 1
        self.cache[self.calls] = self.calls
        if len(self.cache) > 2:
            del self.cache[next(iter(self.cache))]
        self.used.move_to_end("abc"[self.calls % 3])

    def kept(self) -> list[Any]:
        return [list(self.cache), list(self.used), self.calls]


class CalledAgainInTheBackward(Keeping):
    """Activation checkpointing: what it calls, it calls twice."""

    reentrant = False

    def prepare(self) -> None:
        self.sums: list[float] = []

    def noted(self, x: Tensor) -> Tensor:
        self.sums.append(float(x.detach().sum()))
        return torch.tanh(self.linear(x))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = checkpoint(self.noted, x.requires_grad_(), use_reentrant=self.reentrant)
        return made

    def kept(self) -> list[Any]:
        return list(self.sums)


class CalledAgainInAnother(CalledAgainInTheBackward):
    reentrant = True


class MadeLater(Keeping):
    """None at first; then a list, a dict that is renewed now and then, and a large tensor."""

    def prepare(self) -> None:
        self.seen: list[int] | None = None
        self.counts: dict[str, int] = {}
        self.large: Tensor | None = None

    def take(self, x: Tensor) -> Tensor:
        if self.seen is None:
            self.seen, self.large = [], torch.zeros(600, 600)
        if len(self.seen) % 3 == 0:
            self.counts = {"calls": 0}
        self.seen.append(len(self.seen))
        self.counts["calls"] += 1
        assert self.large is not None
        return self.large.add_(x.detach().nan_to_num().mean()).mean()

    def kept(self) -> list[Any]:
        return [self.seen, self.counts, self.large]


class InTuples(Keeping):
    def prepare(self) -> None:
        self.pair: tuple[list[int], dict[str, int]] = ([], {"calls": 0})

    def take(self, x: Tensor) -> None:
        self.pair[0].append(len(x))
        self.pair[1]["calls"] += 1

    def kept(self) -> list[Any]:
        return [*self.pair[0], self.pair[1]["calls"]]


class Holder:
    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer


class LayersFurtherDown(Keeping):
    """Out of torch's sight, in a list in a dict, and in an object."""

    def prepare(self) -> None:
        self.norms = {"a": [nn.BatchNorm1d(4)]}
        self.holder = Holder(nn.BatchNorm1d(4))

    def take(self, x: Tensor) -> Tensor:
        out: Tensor = self.norms["a"][0](x) + self.holder.layer(x)
        return out.detach()

    def kept(self) -> list[Any]:
        return state_of(self.norms["a"][0], self.holder.layer)


class DrawsItself(Keeping):
    """From generators of Python, NumPy and torch that it keeps."""

    def prepare(self) -> None:
        self.of_python, self.of_numpy = random.Random(0), numpy.random.default_rng(0)
        self.more = {"torch": [torch.Generator().manual_seed(0)]}

    def take(self, x: Tensor) -> Tensor:
        drawn = self.of_python.random() + float(self.of_numpy.standard_normal())
        return drawn + torch.randn(4, generator=self.more["torch"][0])

    def kept(self) -> list[Any]:
        return [self.of_python.random(), float(self.of_numpy.random())]


KINDS = [
    MadeLater,
    InTuples,
    LayersFurtherDown,
    DrawsItself,
    TheLastBatch,
    AGrowingBuffer,
    TensorsInAList,
    LayersInAList,
    MadeByTheFirstCall,
    InOrder,
    CalledAgainInTheBackward,
    CalledAgainInAnother,
]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_model_keeps(tmp_path: Path, kind: type[Keeping]) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = kind()
        optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
        for x in batches(bad, left_out):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return [*state_of(model, optimizer), model.kept()]

    assert_skipped_is_never_came(play, tmp_path)


@pytest.mark.parametrize("kind", [AGrowingBuffer, TensorsInAList, TheLastBatch])
def test_what_a_model_keeps_of_the_good_micro_batch(tmp_path: Path, kind: type[Keeping]) -> None:
    def play(bad: bool) -> list[Any]:
        model = kind()
        optimizer = SGD(model.parameters(), lr=0.1)
        xs = list(batches(7 if bad else None, None, 12))
        for step in range(6):
            optimizer.zero_grad()
            for x in xs[2 * step : 2 * step + (1 if step == 3 and not bad else 2)]:
                (model(x).square().mean() / 2).backward()
            optimizer.step()
        return [*state_of(model, optimizer), model.kept()]

    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK) as session:
        found = play(True)
    assert len(session.incidents) == 1
    assert_same(found, play(False))


def test_the_data_of_the_program_stays_as_it_is(tmp_path: Path) -> None:
    data = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
    before, targets = data.clone(), torch.zeros(32, 1)
    targets[12] = float("inf")

    class KeepsItsInput(Keeping):
        def prepare(self) -> None:
            self.register_buffer("last", torch.zeros(4, 4))

        def take(self, x: Tensor) -> Tensor:
            last, self.last = self.last, x
            return last

    model = KeepsItsInput()
    optimizer = SGD(model.parameters(), lr=0.01)
    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK) as session:
        for i in range(0, 32, 4):
            optimizer.zero_grad()
            (model(data[i : i + 4]) - targets[i : i + 4]).square().mean().backward()
            optimizer.step()
    assert len(session.incidents) == 1
    assert torch.equal(data, before)


@pytest.mark.parametrize("how", ["in place", "into the same memory"])
def test_a_batch_of_the_shape_of_a_weight(tmp_path: Path, how: str) -> None:
    """What the program writes between two steps is undone where it came of the weights, and only there."""

    def play(bad: int | None, left_out: int | None) -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
        optimizer = SGD(model.parameters(), lr=0.1)
        memory = torch.empty(6, 4)
        for x in batches(bad, left_out):
            if how == "in place":
                x.mul_(2.0)
            else:
                x = memory.copy_(x)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return state_of(model, optimizer)

    assert_skipped_is_never_came(play, tmp_path)


def test_what_the_program_loads_after_a_bad_step_stays_loaded(tmp_path: Path) -> None:
    model = network(dropout=False)
    good = copy.deepcopy(model.state_dict())
    optimizer, other = SGD(model.parameters(), lr=0.1), nn.Linear(4, 8)
    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK):
        for x in batches(3, None, 4):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        model.load_state_dict(good)
        nn.init.zeros_(other.weight)
        model.eval()(torch.ones(1, 4))
        assert_same(model.state_dict(), good)
        assert not other.weight.any()


def test_two_optimizers_and_one_average(tmp_path: Path) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network(dropout=False)
        first, second = SGD(model[:2].parameters(), lr=0.1), SGD(model[2:].parameters(), lr=0.1)
        average = AveragedModel(model)
        for x in batches(bad, left_out):
            model.zero_grad()
            model(x).square().mean().backward()
            first.step()
            second.step()
            average.update_parameters(model)
        return [*state_of(model, first), *average.state_dict().values()]

    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK):
        found = play(3, None)
    assert_same(found, play(None, 3))


def test_what_stands_still_is_saved_and_copied_as_it_is(tmp_path: Path) -> None:
    model = network(dropout=False)
    optimizer = SGD(model.parameters(), lr=0.1)
    schedule, average = lr_scheduler.StepLR(optimizer, 100), AveragedModel(model)
    counts = []
    with nanwatch.watch(policy="skip", dir=tmp_path / "run", **QUICK) as session:
        for x in batches(3, None):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            copied = copy.deepcopy(average)
            copied.update_parameters(model)
            counts.append(int(copied.n_averaged - average.n_averaged))
            torch.save({"schedule": schedule, "average": average}, tmp_path / "all.pt")
            loaded = torch.load(tmp_path / "all.pt", weights_only=False)
            assert type(loaded["schedule"]) is lr_scheduler.StepLR
            assert type(loaded["average"]) is AveragedModel
            schedule.step()
            average.update_parameters(model)
    assert len(session.incidents) == 1
    assert counts == [1] * len(counts)
    assert (int(average.n_averaged), schedule.last_epoch) == (6, 6)


def test_a_model_that_draws_its_own_points_does_not_draw_the_bad_ones_for_ever(tmp_path: Path) -> None:
    class Draws(nn.Module):
        def __init__(self, generator: torch.Generator | None) -> None:
            super().__init__()
            self.linear, self.generator = nn.Linear(1, 1), generator

        def forward(self) -> Tensor:
            points = torch.rand(8, 1, generator=self.generator)
            inside = (points.min() >= 0.03).float()
            return self.linear(points).square().mean() * inside / inside

    for generator in (None, torch.Generator().manual_seed(0)):
        torch.manual_seed(0)
        model, bad = Draws(generator), 0
        optimizer = SGD(model.parameters(), lr=0.01)
        with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK):
            for _ in range(60):
                optimizer.zero_grad()
                loss = model()
                loss.backward()
                optimizer.step()
                bad += not bool(loss.isfinite())
        assert 5 < bad < 58  # about one in five, each up to four times


class OwnList(SGD):
    """Keeps the weights where its groups are not."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.mine = [p for group in self.param_groups for p in group["params"]]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in self.mine:
            if p.grad is not None:
                p -= 0.1 * p.grad


class AllTogether(SGD):
    """Cannot do without any weight."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            norm = torch.cat([p.grad.flatten() for p in group["params"] if p.grad is not None]).norm()
            group["calls"] = group.get("calls", 0) + 1
            group.setdefault("rate", torch.tensor(0.1)).mul_(0.9)
            for p in group["params"]:
                if p.grad is not None:
                    p -= group["rate"] * p.grad / (1 + norm) / group["calls"]


class CountingBefore(SGD):
    """Calls the step of the class it is built on."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1, momentum=0.9)
        self.calls: list[int] = []

    def step(self, closure: Any = None) -> Any:
        self.calls.append(len(self.calls))
        return super().step(closure)


class AroundAnother(torch.optim.Optimizer):
    """As those that look at a second point do: the update itself is made by another optimizer inside."""

    def __init__(self, parameters: Any) -> None:
        self.inner = SGD(list(parameters), lr=0.1, momentum=0.9)
        super().__init__(self.inner.param_groups, {})
        self.param_groups = self.inner.param_groups

    def step(self, closure: Any = None) -> Any:
        loss = closure()
        self.inner.step()
        return loss


@pytest.mark.parametrize(
    ("kind", "closure"),
    [
        (OwnList, False),
        (AllTogether, False),
        (CountingBefore, False),
        (CountingBefore, True),
        (AroundAnother, True),
    ],
)
def test_optimizers_of_own_classes(tmp_path: Path, kind: Callable[..., Any], closure: bool) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network(dropout=False)
        optimizer = kind(model.parameters())
        for x in batches(bad, left_out):

            def evaluated(x: Tensor = x) -> Tensor:
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                return loss

            if closure:
                optimizer.step(evaluated)
            else:
                evaluated()
                optimizer.step()
        inner = getattr(optimizer, "inner", optimizer)
        own = (
            [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups],
            getattr(optimizer, "calls", 0),
        )
        return [*state_of(model, inner), *own]

    assert_skipped_is_never_came(play, tmp_path)


def test_classes_that_cannot_be_looked_at(tmp_path: Path, capfd: Any) -> None:
    class Unhashable(type):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    class Odd(metaclass=Unhashable): ...

    class Hides:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise RuntimeError("nobody's business")

    class Key:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("not to be compared")

    class Holds(Keeping):
        def prepare(self) -> None:
            self.things = [Odd(), Hides()]
            self.by_key = {Key(): 0}
            self.calls = 0

        def take(self, x: Tensor) -> None:
            self.calls += 1

    model = Holds()
    optimizer = SGD(model.parameters(), lr=0.1)
    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK) as session:
        for x in batches(3, None):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    assert [i.action for i in session.incidents] == ["skipped"]
    assert model.calls == 6
    assert "nanwatch failed" not in capfd.readouterr().err


def test_explaining_draws_nothing_from_a_generator_of_the_program(tmp_path: Path) -> None:
    def play(bad: bool) -> list[Any]:
        generator = torch.Generator().manual_seed(5)
        torch.manual_seed(0)
        model = nn.Linear(4, 4)
        optimizer = SGD(model.parameters(), lr=0.1)
        for step, x in enumerate(batches(None, None)):
            if step == 3 and bad:
                x[1, 2] = -100.0
            noise = torch.randn(6, 4, generator=generator)
            if step == 3 and not bad:
                continue
            optimizer.zero_grad()
            (model((x + 10).sqrt() + 0.1 * noise) - noise).square().mean().backward()
            optimizer.step()
        return [*state_of(model, optimizer), generator.get_state()]

    with nanwatch.watch(policy="skip", dir=tmp_path) as session:
        found = play(True)
    assert len(session.incidents) == 1
    assert_same(found, play(False))
