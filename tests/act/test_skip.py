"""A run with a bad batch that was skipped ends bit for bit like one in which that batch never came."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

sys.path.insert(0, str(Path(__file__).parents[1] / "watching"))

from small_training import assert_same, state_of

import nanwatch

STEPS, BAD = 7, 3
AUDITS = {"audit": {}, "no audit": {"audit_seconds": 0.0, "audit_share": 0.0}}


def random_states() -> list[torch.Tensor]:
    return [torch.get_rng_state()]


def batches(bad: int | None, left_out: int | None, count: int = STEPS) -> Iterator[torch.Tensor]:
    for step in range(count):
        if step == left_out:
            continue
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))
        if step == bad:
            x[2, 1] = float("nan")
        yield x


def network(dropout: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    parts = [
        nn.Linear(4, 8),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Dropout(0.3 if dropout else 0.0),
        nn.Linear(8, 1),
    ]
    return nn.Sequential(*parts)


Play = Callable[[int | None, int | None], list[Any]]


def assert_skipped_is_never_came(play: Play, folder: Path, audit: str = "no audit") -> nanwatch.Session:
    with nanwatch.watch(policy="skip", dir=folder, explain=False, **AUDITS[audit]) as session:
        found = play(BAD, None)
    assert [i.action for i in session.incidents] == ["skipped"]
    assert_same(found, play(None, BAD))
    return session


def optimizers() -> dict[str, Callable[[nn.Module], torch.optim.Optimizer]]:
    """Each of torch.optim that updates dense weights in one call."""
    found: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {}
    for name, kind in vars(torch.optim).items():
        dense = inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer)
        if dense and name not in ("Optimizer", "LBFGS", "SparseAdam", "Muon"):
            found[name] = lambda model, kind=kind: kind(model.parameters(), lr=0.01)
    found["LBFGS"] = lambda model: torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=3)
    if hasattr(torch.optim, "Muon"):
        found["Muon"] = lambda model: torch.optim.Muon(
            [p for p in model.parameters() if p.dim() == 2], lr=0.01
        )
    found["fused AdamW"] = lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    return found


OPTIMIZERS = optimizers()


@pytest.mark.parametrize("audit", AUDITS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimizer(name: str, audit: str, tmp_path: Path) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network(dropout=name != "LBFGS")
        optimizer = OPTIMIZERS[name](model)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=20, cycle_momentum=False)
        for x in batches(bad, left_out):

            def closure(x: torch.Tensor = x) -> torch.Tensor:
                optimizer.zero_grad()
                loss = (model(x) - 1).square().mean()
                loss.backward()
                return loss

            if name == "LBFGS":
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()
            schedule.step()
        return [*state_of(model, optimizer, schedule), random_states()]

    assert len(OPTIMIZERS) > 12
    assert_skipped_is_never_came(play, tmp_path / "run", audit)


class ThatHandsOn(torch.amp.GradScaler):
    """With methods of its own, which call those of torch."""

    def scale(self, outputs: Any) -> Any:
        return super().scale(outputs)

    def unscale_(self, optimizer: Any) -> None:
        super().unscale_(optimizer)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        super().update(new_scale)


@pytest.fixture
def one_rank() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def scaler_of(kind: str) -> Any:
    options: dict[str, Any] = {"init_scale": 2.0**8, "growth_interval": 2}
    if kind == "of FSDP":
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        return ShardedGradScaler("cpu", **options)
    return (ThatHandsOn if kind == "that hands on" else torch.amp.GradScaler)("cpu", **options)


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("kind", ["of torch", "of FSDP", "that hands on"])
@pytest.mark.parametrize("made", ["before", "within"])
def test_with_a_scaler(kind: str, made: str, tmp_path: Path) -> None:
    made_before = [scaler_of(kind), scaler_of(kind)] if made == "before" else []

    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        scaler = made_before.pop() if made_before else scaler_of(kind)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
        for x in batches(bad, left_out):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = (model(x).float() - 1).square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
        return [*state_of(model, optimizer, scaler, schedule), random_states()]

    session = assert_skipped_is_never_came(play, tmp_path / "run")
    assert session.history
    for name in ("scale", "unscale", "scaler-step"):
        assert all(facts.events.count(name) == 1 for facts in session.history), name


class Anew:
    """Averages that are made anew each time, of weights and statistics."""

    def __init__(self, model: nn.Module, kind: str) -> None:
        self.model, self.kind = model, kind
        self.ema = {k: v.clone().float() for k, v in model.state_dict().items()}
        self.copies: Any = None
        if kind == "anew, copied whole":
            self.copies = AveragedModel(model).module

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self.ema if self.copies is None else self.copies.state_dict()

    @torch.no_grad()
    def move_on(self) -> None:
        state = self.model.state_dict()
        if self.kind == "anew":
            self.ema = {k: 0.9 * self.ema[k] + (1 - 0.9) * v for k, v in state.items()}
        elif self.kind == "anew, lerp":
            for k in list(self.ema):
                self.ema[k] = torch.lerp(self.ema[k], state[k].float(), 0.1)
        elif self.kind == "anew, the difference":
            self.ema = {k: e - 0.1 * (e - state[k]) for k, e in self.ema.items()}
        else:
            moved = copy.deepcopy(self.copies)
            for e, p in zip(moved.parameters(), self.model.parameters(), strict=True):
                e.mul_(0.9).add_(p, alpha=0.1)
            self.copies = moved


ANEW = ["anew", "anew, lerp", "anew, the difference", "anew, copied whole"]


def keep_averages(kind: str, model: nn.Module) -> tuple[Any, Callable[[], None]]:
    """An average of the weights, and what moves it on."""
    if kind in ("averaged", "averaged in one go"):
        many = get_ema_multi_avg_fn(0.9) if kind == "averaged in one go" else None
        average = AveragedModel(model, multi_avg_fn=many)
        return average, lambda: average.update_parameters(model)
    if kind.startswith("anew"):
        anew = Anew(model, kind)
        return anew, anew.move_on
    average = AveragedModel(model).module
    pairs = list(zip(average.parameters(), model.parameters(), strict=True))

    @torch.no_grad()
    def by_hand() -> None:
        if kind == "foreach":
            torch._foreach_lerp_([e for e, _ in pairs], [p for _, p in pairs], 0.1)
            return
        for e, p in pairs:
            if kind == "mul, add":
                e.mul_(0.9).add_(p, alpha=0.1)
            elif kind == "lerp":
                e.lerp_(p, 0.1)
            else:
                e.data.copy_(0.9 * e.data + 0.1 * p.data)

    return average, by_hand


@pytest.mark.parametrize(
    "kind", ["averaged", "averaged in one go", "mul, add", "lerp", "copy", "foreach", *ANEW]
)
def test_with_averages(kind: str, tmp_path: Path) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        average, move_on = keep_averages(kind, model)
        for x in batches(bad, left_out):
            optimizer.zero_grad()
            (model(x) - 1).square().mean().backward()
            optimizer.step()
            move_on()
        return [*state_of(model, optimizer, average), random_states()]

    assert_skipped_is_never_came(play, tmp_path / "run")


FAULTS = ("batch", "loss", "backward")


def spoiled(loss: torch.Tensor, fault: str) -> torch.Tensor:
    if fault == "loss":
        return loss + torch.log(loss.detach() * 0 - 1)
    return loss + torch.sqrt(0 * loss) if fault == "backward" else loss


@pytest.mark.parametrize("clip", ["not clipped", "norm", "value"])
@pytest.mark.parametrize("fault", FAULTS)
def test_good_micro_batches_are_kept(fault: str, clip: str, tmp_path: Path) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
        for step in range(4):
            optimizer.zero_grad()
            for part in range(4):
                number = 4 * step + part
                if number == left_out:
                    continue
                (x,) = batches(0 if number == bad and fault == "batch" else None, None, 1)
                loss = (model(x * (1 + number)) - 1).square().mean() / 4
                (spoiled(loss, fault) if number == bad else loss).backward()
            if clip == "norm":
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            elif clip == "value":
                nn.utils.clip_grad_value_(model.parameters(), 0.01)
            optimizer.step()
            schedule.step()
        return [*state_of(model, optimizer, schedule), random_states()]

    session = assert_skipped_is_never_came(play, tmp_path / "run")
    (incident,) = session.incidents
    assert any("micro-batch 3 of 4" in note for note in incident.notes), incident.notes


@pytest.mark.parametrize("unscaled", ["unscaled and clipped", "left to the scaler"])
@pytest.mark.parametrize("fault", FAULTS)
def test_good_micro_batches_are_kept_with_a_scaler(fault: str, unscaled: str, tmp_path: Path) -> None:
    """At the same scale, and the scaler counts the step as a good one."""

    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=2)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
        for step in range(4):
            optimizer.zero_grad()
            for part in range(4):
                number = 4 * step + part
                if number == left_out:
                    continue
                (x,) = batches(0 if number == bad and fault == "batch" else None, None, 1)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = (model(x * (1 + number)).float() - 1).square().mean() / 4
                scaler.scale(spoiled(loss, fault) if number == bad else loss).backward()
            if unscaled == "unscaled and clipped":
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
        return [*state_of(model, optimizer, schedule, scaler), random_states()]

    session = assert_skipped_is_never_came(play, tmp_path / "run")
    (incident,) = session.incidents
    assert any("micro-batch 3 of 4" in note for note in incident.notes), incident.notes
    assert [f.step for f in session.history] == [0, 1, 2, 3]


@pytest.mark.parametrize("part", [0, 1])
def test_statistics_and_random_numbers_begin_where_the_group_began(part: int, tmp_path: Path) -> None:
    """Not where the first good micro-batch found them: the bad one before it has changed them."""
    bad_at = 4 + part

    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            for number in (4 * step + each for each in range(3)):
                if left_out is not None and number == bad_at:
                    continue
                (x,) = batches(0 if bad is not None and number == bad_at else None, None, 1)
                (model(x * (1 + number)) - 1).square().mean().backward()
            optimizer.step()
        return [*state_of(model, optimizer), random_states()]

    assert_skipped_is_never_came(play, tmp_path / "run")


@pytest.mark.parametrize("fault", FAULTS)
def test_optimizers_that_share_a_scaler_leave_the_group_out(fault: str, tmp_path: Path) -> None:
    """And it is said."""

    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network()
        first, second = (
            torch.optim.SGD(half.parameters(), lr=0.1, momentum=0.9) for half in (model[:2], model[2:])
        )
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=2)
        for step in range(5):
            if step == left_out:
                continue
            model.zero_grad()
            for part in range(2):
                here = step == bad and part == 1
                (x,) = batches(0 if here and fault == "batch" else None, None, 1)
                loss = (model(x * (1 + part)) - 1).square().mean()
                scaler.scale(spoiled(loss, fault) if here else loss).backward()
            for optimizer in (first, second):
                scaler.unscale_(optimizer)
            for optimizer in (first, second):
                scaler.step(optimizer)
            scaler.update()
        return [*state_of(model, first, second, scaler), random_states()]

    with nanwatch.watch(policy="skip", dir=tmp_path / "run", explain=False, **AUDITS["no audit"]) as session:
        found = play(BAD, None)
    assert {i.action for i in session.incidents} == {"skipped"}
    assert any("All micro-batches of this step are left out" in n for n in session.incidents[0].notes)
    assert_same(found, play(None, BAD))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("looks", ["no look", "looks at gradients"])
def test_optimizers_that_share_a_bad_loss_all_leave_it_out(count: int, looks: str, tmp_path: Path) -> None:
    """Also where their gradients are finite: it is one batch, and one incident."""

    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network()
        parts = (model[:1], model[1:2], model[2:]) if count == 3 else (model[:2], model[2:])
        optimizers = [torch.optim.Adam(part.parameters(), lr=0.1) for part in parts]
        for step, x in enumerate(batches(None, left_out)):
            model.zero_grad()
            loss = (model(x) - 1).square().mean()
            (spoiled(loss, "loss") if step == bad else loss).backward()
            for optimizer in optimizers:
                optimizer.step()
                if looks != "no look":
                    [p.grad.norm() for p in model.parameters()]
        return [*state_of(model, *optimizers), random_states()]

    assert_skipped_is_never_came(play, tmp_path / "run")


def test_where_all_micro_batches_are_bad_none_is_kept(tmp_path: Path) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(5):
            if step == left_out:
                continue
            optimizer.zero_grad()
            for part in range(2):
                (x,) = batches(0 if step == bad else None, None, 1)
                (model(x + part) - 1).square().mean().backward()
            optimizer.step()
        return [*state_of(model, optimizer), random_states()]

    assert_skipped_is_never_came(play, tmp_path / "run")


def test_micro_batches_that_hang_together_are_skipped_together(tmp_path: Path) -> None:
    """Two losses on one output: without the first there is no second."""

    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(5):
            if step == left_out:
                continue
            optimizer.zero_grad()
            (x,) = batches(None, None, 1)
            out = model(x)
            (spoiled(out.mean(), "loss") if step == bad else out.mean()).backward(retain_graph=True)
            out.square().mean().backward()
            optimizer.step()
        return [*state_of(model, optimizer), random_states()]

    assert_skipped_is_never_came(play, tmp_path / "run")


def test_a_schedule_by_epochs_goes_on(tmp_path: Path) -> None:
    """The bad batch is the last of its epoch: the schedule is not the batch's."""

    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for step in range(12):
            if step != left_out:
                for x in batches(0 if step == bad else None, None, 1):
                    optimizer.zero_grad()
                    (model(x) - 1).square().mean().backward()
                    optimizer.step()
            if step % 4 == 3:
                schedule.step()
        return state_of(model, optimizer, schedule)

    assert_skipped_is_never_came(play, tmp_path / "run")


def test_closing_lets_everything_go_on(tmp_path: Path) -> None:
    """The last step was skipped and the session is over: what stood still for it moves again."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    average = AveragedModel(model)
    with nanwatch.watch(policy="skip", dir=tmp_path / "run", explain=False):
        (model(torch.full((4, 4), float("nan")))).mean().backward()
        optimizer.step()
    assert type(schedule) is torch.optim.lr_scheduler.ExponentialLR and type(average) is AveragedModel
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.05
