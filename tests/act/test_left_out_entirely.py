"""What a program does around an update that was left out: schedules, averages, clipping, state of its own,
and the file it saves to."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import tempfile
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_ as imported_by_name
from torch.nn.utils import parameters_to_vector
from torch.nn.utils.parametrizations import spectral_norm
from torch.optim import SGD, AdamW, lr_scheduler
from torch.optim.swa_utils import AveragedModel

sys.path.insert(0, str(Path(__file__).parents[1] / "watching"))

from small_training import assert_same, state_of
from test_skip import BAD, STEPS, assert_skipped_is_never_came, batches, network

import nanwatch

QUICK: dict[str, Any] = {"explain": False, "audit_seconds": 0.0, "audit_share": 0.0}

SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "warm restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
    "one after the other": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=3), lr_scheduler.ExponentialLR(o, 0.9)], [3]
    ),
    "chains, one after the other": lambda o: lr_scheduler.SequentialLR(
        o,
        [
            lr_scheduler.ChainedScheduler(
                [lr_scheduler.LinearLR(o, 0.1), lr_scheduler.ExponentialLR(o, 0.9)]
            ),
            lr_scheduler.CosineAnnealingLR(o, 10),
        ],
        [3],
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_that_goes_by_steps(tmp_path: Path, name: str) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network(dropout=False)
        optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = SCHEDULES[name](optimizer)
        for x in batches(bad, left_out):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            schedule.step(*([1.0] if name == "plateau" else []))
        return [*state_of(model, optimizer), schedule.last_epoch]

    assert_skipped_is_never_came(play, tmp_path)


@pytest.mark.parametrize("bad", [0, 2, 3, 5])
def test_a_schedule_by_epochs_that_comes_from_a_checkpoint(tmp_path: Path, bad: int) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network(dropout=False)
        optimizer = SGD(model.parameters(), lr=0.1)
        schedule = lr_scheduler.StepLR(optimizer, 2)
        schedule.load_state_dict({**schedule.state_dict(), "last_epoch": 31, "_step_count": 32})
        xs = list(batches(bad, None, 6))
        for step, x in enumerate(xs):
            if step != left_out:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            if step % 3 == 2:
                schedule.step()
        return [*state_of(model, optimizer), schedule.last_epoch]

    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK):
        found = play(bad, None)
    assert_same(found, play(None, bad))


class Carrying(nn.Module):
    """Keeps a running mean and a count in plain attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.mean = torch.zeros(4)
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.count += 1
        return self.linear(x - self.mean) / self.count


class CarryingInPlace(Carrying):
    """The same, in the memory of one tensor; and something sparse beside it that stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = torch.eye(4).to_sparse()

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        self.count += 1
        return self.linear(torch.sparse.mm(self.graph, (x - self.mean).T).T) / self.count


class CarryingInABuffer(Carrying):
    """A buffer that the first batch sets; later ones change it in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", None)
        self.center: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        if self.center is None:
            self.center = x.detach().mean(0)
        else:
            self.center.lerp_(x.detach().mean(0), 0.1)
        self.mean, self.count = self.center, self.count + 1
        return self.linear(x - self.center)


class Notes:
    def __init__(self) -> None:
        self.last = 0.0


class CarryingInContainers(Carrying):
    """Lists in dicts, a queue, an object of its own, a generator, and an array that it only fills."""

    uses_it = True

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, Any] = {"means": [], "calls": 0}
        self.queue = deque([0.0], maxlen=3)
        self.array = numpy.zeros(2)
        self.notes = Notes()
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x: Tensor) -> Tensor:
        mean = float(x.detach().mean())
        self.seen["means"].append(mean)
        self.seen["calls"] += 1
        self.queue.append(mean)
        self.array[self.seen["calls"] % 2] += mean
        self.notes.last = mean
        self.mean = torch.tensor([sum(self.queue), mean, len(self.queue), self.notes.last])
        self.count = len(self.seen["means"])
        noise = torch.rand(x.shape, generator=self.generator)
        return self.linear(x * noise - self.mean) / self.count if self.uses_it else self.linear(x * noise)


@pytest.mark.parametrize(
    "kind", [Carrying, CarryingInPlace, CarryingInABuffer, CarryingInContainers], ids=lambda k: k.__name__
)
def test_state_that_a_model_keeps_in_plain_attributes(tmp_path: Path, kind: type[Carrying]) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        torch.manual_seed(0)
        model = kind()
        optimizer = SGD(model.parameters(), lr=0.1)
        for x in batches(bad, left_out):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return [*state_of(model, optimizer), model.mean, model.count]

    assert_skipped_is_never_came(play, tmp_path)


def test_a_lazy_layer_keeps_the_size_that_a_bad_first_batch_gave_it(tmp_path: Path) -> None:
    lazy = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.Linear(3, 1))
    optimizer = SGD(lazy.parameters(), lr=0.1)
    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK):
        for x in (torch.full((2, 5), torch.nan), torch.ones(2, 5)):
            optimizer.zero_grad()
            lazy(x).sum().backward()
            optimizer.step()
    assert (lazy[0].in_features, tuple(lazy[0].weight.shape)) == (5, (3, 5))


@pytest.mark.parametrize("first", [True, False])
def test_such_state_where_only_one_micro_batch_is_left_out(tmp_path: Path, first: bool) -> None:
    def play(spoil: bool) -> list[Any]:
        torch.manual_seed(0)
        model = CarryingInContainers()
        model.uses_it = not first  # else the second one is bad, too
        optimizer = SGD(model.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            parts = [torch.randn(6, 4), torch.randn(6, 4)]
            if step == 2 and spoil:
                parts[0 if first else 1][3, 1] = torch.nan
            elif step == 2:
                parts.pop(0 if first else 1)
            for x in parts:
                model(x).square().mean().backward()
            optimizer.step()
        return [*state_of(model, optimizer), model.mean, model.count, model.seen, list(model.queue)]

    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK):
        found = play(True)
    assert_same(found, play(False))


def test_a_replay_changes_nothing_that_a_model_keeps(tmp_path: Path) -> None:
    def play() -> list[Any]:
        torch.manual_seed(0)
        model = CarryingInContainers()
        optimizer = SGD(model.parameters(), lr=0.1)
        for x in batches(BAD, None):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        state = model.generator.get_state()
        return [repr(model.seen), repr(model.queue), repr(model.array), repr(model.notes.last), state]

    with nanwatch.watch(policy="observe", dir=tmp_path, audit_seconds=0.0, audit_share=0.0) as watch:
        found = play()
    assert len(watch.incidents) >= 1 and "replay" in watch.incidents[0].located_by
    assert_same(found, play())


class CountingThroughItsData(nn.Module):
    """Takes its batches itself; the loop notes something in the same object."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.notes = Notes()
        self.samples = deque(torch.full((3, 2), torch.nan if i == 3 else float(i)) for i in range(9))

    def forward(self) -> Tensor:
        self.notes.last += 1
        return self.linear(self.samples.popleft())


def test_a_model_that_holds_its_own_data_gets_on(tmp_path: Path) -> None:
    model = CountingThroughItsData()
    optimizer = SGD(model.parameters(), lr=1e-3)
    model.notes.seen = 0  # type: ignore[attr-defined]
    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK):
        for _ in range(40):
            if not model.samples:
                break
            optimizer.zero_grad()
            model().square().mean().backward()
            model.notes.seen += 1  # type: ignore[attr-defined]
            optimizer.step()
    assert not model.samples and model.linear.weight.isfinite().all()
    assert model.notes.seen == 9 + 3, "the bad one came again three times, and each was counted"  # type: ignore[attr-defined]


class Refuses(dict[str, int]):
    def clear(self) -> None:
        raise RuntimeError("never")


class HoldsWhatCannotGoBack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.base = torch.zeros(1)
        self.register_buffer("view", self.base.expand(3))
        self.register_buffer("graph", torch.eye(4).to_sparse())
        self.register_buffer("csr", torch.eye(4).to_sparse_csr())
        self.refuses = Refuses(calls=0)
        self.array = numpy.array(1.0)
        self.frozen = numpy.zeros(2)
        self.frozen.flags.writeable = False
        self.nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])

    def forward(self, x: Tensor) -> Tensor:
        self.base.add_(x.detach().mean())
        self.refuses["calls"] += 1
        return self.linear(torch.sparse.mm(self.graph, x.T).T)


def test_what_refuses_to_go_back_does_not_let_the_update_through(tmp_path: Path, capfd: Any) -> None:
    torch.manual_seed(0)
    model = HoldsWhatCannotGoBack()
    optimizer = SGD(model.parameters(), lr=0.1)
    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK) as watch:
        for x in batches(BAD, None):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    assert watch.skipped == 1 and model.linear.weight.isfinite().all()
    assert "steps aside" not in capfd.readouterr().err


def test_a_hook_before_the_step_that_removes_itself(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    optimizer = SGD(model.parameters(), lr=0.1)
    calls: list[str] = []

    def once(*_: Any) -> None:
        calls.append("once")
        handle.remove()

    optimizer.register_step_pre_hook(lambda *_: calls.append("always"))
    handle = optimizer.register_step_pre_hook(once)
    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK) as watch:
        for x in (torch.ones(2, 4), torch.full((2, 4), torch.nan), torch.ones(2, 4)):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    assert calls == ["always", "once", "always", "always"] and watch.skipped == 1


def test_the_average_of_another_model_goes_on(tmp_path: Path) -> None:
    def play(bad: int | None) -> list[Any]:
        models = [network(dropout=False), network(dropout=False)]
        optimizers = [SGD(m.parameters(), lr=0.1) for m in models]
        averages = [AveragedModel(m) for m in models]
        for first, second in zip(batches(bad, None), batches(None, None), strict=True):
            for model, optimizer, x in zip(models, optimizers, (first, second), strict=True):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            for average, model in zip(averages, models, strict=True):
                average.update_parameters(model)
        return [averages[1].state_dict(), int(averages[0].n_averaged)]

    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK):
        found = play(BAD)
    expected = play(None)
    assert_same(found[0], expected[0])
    assert (found[1], expected[1]) == (STEPS - 1, STEPS)


@pytest.mark.parametrize("bad", [4, 5], ids=["the first batch", "the last batch"])
def test_an_average_that_goes_by_epochs_counts_them_all(tmp_path: Path, bad: int) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network(dropout=False)
        optimizer = SGD(model.parameters(), lr=0.1)
        average = AveragedModel(model)
        xs = list(batches(bad, None, 8))
        for epoch in range(4):
            for step in (2 * epoch, 2 * epoch + 1):
                if step != left_out:
                    optimizer.zero_grad()
                    model(xs[step]).square().mean().backward()
                    optimizer.step()
            average.update_parameters(model)
        return [*state_of(model, optimizer), average.state_dict()]

    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK):
        found = play(bad, None)
    assert_same(found, play(None, bad))


class Counting(torch.optim.Optimizer):
    """Its step size hangs on counters of its own."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.calls = 0
        self.kept: dict[str, Any] = {"calls": []}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.calls += 1
        self.kept["calls"].append(self.calls)
        self.state["all"]["calls"] = self.calls
        for p in (p for group in self.param_groups for p in group["params"]):
            p.sub_(p.grad, alpha=0.1 / self.calls)


def test_an_optimizer_that_counts_for_itself(tmp_path: Path) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network(dropout=False)
        optimizer = Counting(model.parameters())
        for x in batches(bad, left_out):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return [model.state_dict(), optimizer.calls, optimizer.kept, optimizer.state["all"]]

    assert_skipped_is_never_came(play, tmp_path)


def test_the_average_of_an_average(tmp_path: Path) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network(dropout=False)
        optimizer = SGD(model.parameters(), lr=0.1)
        average = AveragedModel(model)
        slower = AveragedModel(average)
        for x in batches(bad, left_out):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            average.update_parameters(model)
            slower.update_parameters(average)
        return [*state_of(model, optimizer), average.state_dict(), slower.state_dict()]

    assert_skipped_is_never_came(play, tmp_path)


def test_a_parametrization_that_is_made_under_the_watch(tmp_path: Path) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(spectral_norm(nn.Linear(4, 8)), nn.Tanh(), nn.Linear(8, 1))
        optimizer = SGD(model.parameters(), lr=0.1)
        for x in list(batches(None, None))[1:] if left_out == 0 else batches(bad, None):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return state_of(model, optimizer)

    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK):
        found = play(0, None)
    assert_same(found, play(None, 0))


def test_gradients_that_are_asked_for_and_handed_over_are_told_once(tmp_path: Path) -> None:
    weight = torch.ones(4, 1, requires_grad=True)
    optimizer = SGD([weight], lr=0.1)
    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK) as watch:
        for x in batches(0, None):
            (weight.grad,) = torch.autograd.grad((x @ weight).square().mean(), [weight])
            optimizer.step()
    assert (watch.skipped, len(watch.incidents)) == (1, 1)


@torch.no_grad()
def move_towards(average: Tensor, weights: Tensor) -> None:
    average.mul_(0.9).add_(weights, alpha=0.1)


@pytest.mark.parametrize("where", ["a vector", "a hook after the step", "its data, set anew"])
def test_an_average_by_hand(tmp_path: Path, where: str) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network(dropout=False)
        optimizer = AdamW(model.parameters(), lr=0.1)
        average = parameters_to_vector(model.parameters()).detach().clone()
        if where == "a hook after the step":
            optimizer.register_step_post_hook(
                lambda *_: move_towards(average, parameters_to_vector(model.parameters()))
            )
        for x in batches(bad, left_out):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            if where == "a vector":
                move_towards(average, parameters_to_vector(model.parameters()))
            elif where == "its data, set anew":
                average.data = 0.9 * average.data + 0.1 * parameters_to_vector(model.parameters()).data
        return [*state_of(model, optimizer), average]

    assert_skipped_is_never_came(play, tmp_path)


def test_an_average_by_hand_in_another_precision(tmp_path: Path) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network(dropout=False)
        optimizer = SGD(model.parameters(), lr=0.1)
        average = [p.detach().double() for p in model.parameters()]
        for x in batches(bad, left_out):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            with torch.no_grad():
                for mine, parameter in zip(average, model.parameters(), strict=True):
                    mine.lerp_(parameter.double(), 0.1)
        return [*state_of(model, optimizer), *average]

    assert_skipped_is_never_came(play, tmp_path)


def halved_by_hand(parameters: list[Tensor]) -> None:
    for parameter in parameters:
        assert parameter.grad is not None
        parameter.grad /= 2


def made_anew(parameters: list[Tensor]) -> None:
    for parameter in parameters:
        assert parameter.grad is not None
        parameter.grad = parameter.grad * 0.5


KNOWN: dict[str, Callable[[list[Tensor]], object]] = {
    "norm": lambda p: torch.nn.utils.clip_grad_norm_(p, 0.01),
    "our norm": lambda p: nanwatch.clip_grad_norm_(p, 0.01),
    "our value": lambda p: nanwatch.clip_grad_value_(p, 0.001),
}
UNKNOWN: dict[str, Callable[[list[Tensor]], object]] = {
    "halved by hand": halved_by_hand,
    "made anew": made_anew,
    "imported by name": lambda p: imported_by_name(p, 0.01),
}


@pytest.mark.parametrize("name", [*KNOWN, *UNKNOWN])
@pytest.mark.parametrize("where", [0, 1])
def test_the_good_micro_batch_is_kept_where_it_is_known_what_is_done_to_gradients(
    tmp_path: Path, name: str, where: int
) -> None:
    def play(bad: int | None, left_out: list[int]) -> list[Any]:
        model = network(dropout=False)
        parameters = list(model.parameters())
        optimizer = SGD(parameters, lr=0.5)
        xs = list(batches(bad, None, 8))
        for group in range(4):
            parts = [xs[i] for i in (2 * group, 2 * group + 1) if i not in left_out]
            if not parts:
                continue
            optimizer.zero_grad()
            for x in parts:
                model(x).square().mean().backward()
            {**KNOWN, **UNKNOWN}[name](parameters)
            optimizer.step()
        return state_of(model, optimizer)

    bad = 4 + where
    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK) as session:
        found = play(bad, [])
    assert [i.action for i in session.incidents] == ["skipped"]
    assert_same(found, play(None, [bad] if name in KNOWN else [4, 5]))


def test_after_a_rollback_schedule_and_average_go_with_the_weights(tmp_path: Path) -> None:
    def play(bad: int | None, count: int) -> list[Any]:
        model = network(dropout=False)
        optimizer = AdamW(model.parameters(), lr=0.01)
        schedule, average = lr_scheduler.ExponentialLR(optimizer, 0.99), AveragedModel(model)
        for x in batches(bad, None, count):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            schedule.step()
            average.update_parameters(model)
        return [*state_of(model, optimizer), average.state_dict(), schedule.last_epoch]

    policy = nanwatch.Policy(rollbacks=2, rate_factor=1.0)
    with nanwatch.watch(policy=policy, dir=tmp_path, snapshot_every=5, **QUICK) as session:
        found = play(13, 14)
    assert session.rolled_back == 1
    assert_same(found, play(None, 11))


def test_the_average_of_a_training_that_failed_before_is_no_part_of_this_one(tmp_path: Path) -> None:
    stranger = AveragedModel(network())
    with torch.no_grad():
        stranger.module[0].weight.fill_(float("nan"))
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    with nanwatch.watch(policy="rollback", dir=tmp_path, snapshot_every=2, **QUICK) as session:
        for x in batches(5, None):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    assert [i.action for i in session.incidents] == ["rolled-back"]
    assert session.rolled_back == 1


def test_who_cannot_go_back_after_all_is_on_record_as_stopped(tmp_path: Path) -> None:
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    options: Any = {**QUICK, "dir": tmp_path, "snapshot_every": 2}
    with pytest.raises(nanwatch.NonFiniteError) as caught, nanwatch.watch(policy="rollback", **options):
        for step, x in enumerate(batches(5, None)):
            if step == 5:
                model[0] = nn.Linear(4, 8, dtype=torch.float32)  # what was kept does not fit any more
                model[4] = nn.Linear(8, 2)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    assert caught.value.incident is not None and caught.value.incident.action == "raised"
    assert "could not go back" in str(caught.value)
    (written,) = (tmp_path / "incidents").glob("*/incident.json")
    assert json.loads(written.read_text())["action"] == "raised"


def test_a_bad_checkpoint_that_is_renamed_stays_aside(tmp_path: Path, capfd: Any) -> None:
    path = tmp_path / "model.pt"
    torch.save({"weight": torch.ones(3)}, path)
    with nanwatch.checkpoint_gate():
        for rename in (os.replace, os.rename, lambda a, b: Path(a).replace(b)):
            torch.save({"weight": torch.full((3,), float("nan"))}, tmp_path / "model.pt.tmp")
            rename(tmp_path / "model.pt.tmp", path)
        (tmp_path / "other").write_text("fine")
        os.replace(tmp_path / "other", tmp_path / "another")
        with pytest.raises(FileNotFoundError):
            os.replace(tmp_path / "nowhere", path)
    assert torch.equal(torch.load(path)["weight"], torch.ones(3))
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == [
        "another",
        "model.nonfinite-2.pt",
        "model.nonfinite-3.pt",
        "model.nonfinite.pt",
        "model.pt",
    ]
    assert capfd.readouterr().err.count("stays as it was") == 3


def through_an_empty_file(state: Any, path: Path) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    os.close(handle)
    torch.save(state, temporary)
    os.replace(temporary, path)


def through_a_named_file(state: Any, path: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        torch.save(state, file.name)
    Path(file.name).replace(path)


def through_a_copy(state: Any, path: Path) -> None:
    torch.save(state, f"{path}.tmp")
    shutil.copy(f"{path}.tmp", path)
    os.remove(f"{path}.tmp")


def through_a_link(state: Any, path: Path) -> None:
    torch.save(state, f"{path}.tmp")
    path.unlink()
    os.link(f"{path}.tmp", path)
    Path(f"{path}.tmp").unlink()


@pytest.mark.parametrize(
    "save", [through_an_empty_file, through_a_named_file, through_a_copy, through_a_link]
)
def test_ways_to_write_a_file_as_a_whole(tmp_path: Path, save: Callable[[Any, Path], None]) -> None:
    path = tmp_path / "model.pt"
    good, bad = {"weight": torch.ones(3)}, {"weight": torch.full((3,), torch.nan)}
    torch.save(good, path)
    with nanwatch.checkpoint_gate():
        save(good, path)
        save(bad, path)
        kept = sorted(p.name for p in tmp_path.glob("*.pt"))
        if save is through_a_link:  # the program itself has removed the good one
            assert kept == ["model.nonfinite.pt"]
        else:
            assert kept == ["model.nonfinite.pt", "model.pt"]
            assert torch.equal(torch.load(path)["weight"], torch.ones(3))
        torch.save(good, path)
        os.replace(path, tmp_path / "moved.pt")  # a good one in its place is moved as ever
        assert torch.equal(torch.load(tmp_path / "moved.pt")["weight"], torch.ones(3))
        with pytest.raises(FileNotFoundError):
            os.remove(tmp_path / "nowhere")
    assert not torch.load(tmp_path / "model.nonfinite.pt")["weight"].isfinite().any()


def test_a_graph_that_is_still_to_be_differentiated_goes_on(tmp_path: Path) -> None:
    """The loop of DCGAN: what the generator made is judged once for the discriminator's update, which is
    left out, and once for its own."""
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4))
    judge = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.LeakyReLU(0.2), nn.Linear(6, 1))
    optimizers = [SGD(m.parameters(), lr=0.01) for m in (judge, generator)]
    before = [p.detach().clone() for p in judge.parameters()]
    with nanwatch.watch(policy="skip", dir=tmp_path, **QUICK) as watch:
        made = generator(torch.randn(8, 3))
        judge.zero_grad()
        (judge(made.detach()).square().mean() * torch.nan).backward()
        optimizers[0].step()
        generator.zero_grad()
        judge(made).square().mean().backward()
        optimizers[1].step()
    assert len(watch.incidents) == 1
    assert_same(before, [p.detach() for p in judge.parameters()])
    assert all(t.isfinite().all() for m in (generator, judge) for t in m.state_dict().values())


def test_statistics_of_a_scripted_layer(tmp_path: Path) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), torch.jit.script(nn.BatchNorm1d(3)), nn.Linear(3, 1))
        optimizer = SGD(model.parameters(), lr=0.1)
        for x in batches(bad, left_out):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return state_of(model, optimizer)

    assert_skipped_is_never_came(play, tmp_path)


def test_trainings_that_are_over_are_not_held(tmp_path: Path) -> None:
    weights, optimizers = [], []
    with nanwatch.watch(policy="survive", dir=tmp_path, **QUICK) as watch:
        for _ in range(6):
            model = nn.Linear(4, 1)
            optimizer = SGD(model.parameters(), lr=0.01)
            weights.append(weakref.ref(model.weight))
            optimizers.append(weakref.ref(optimizer))
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.randn(2, 4)).square().mean().backward()
                optimizer.step()
            del model, optimizer
        gc.collect()
        assert sum(w() is not None for w in weights) <= 2
        assert sum(o() is not None for o in optimizers) <= 1
    assert not watch.incidents
