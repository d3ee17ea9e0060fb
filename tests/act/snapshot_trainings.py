"""Small trainings with all kinds of state, and ways to spoil them and to compare them bit for bit."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel


class Training:
    """A model, its optimizer and whatever else has state; every step draws its batch from all generators."""

    def __init__(self, model: nn.Module | None, optimizer: Any, *more: Any) -> None:
        self.model, self.optimizer, self.more = model, optimizer, more
        self.scaler = next((o for o in more if isinstance(o, torch.amp.GradScaler)), None)

    @property
    def objects(self) -> list[Any]:
        return [o for o in (self.model, self.optimizer, *self.more) if o is not None]

    def loss(self) -> Tensor:
        shift = random.random() + float(numpy.random.rand())
        x = torch.randn(6, 4) + shift
        if self.model is None:
            return sum((p.sum() * x.mean()).square() for p in self.optimizer.param_groups[0]["params"])
        weight = next(self.model.parameters())
        out = self.model(x.to(weight.dtype) if weight.is_floating_point() or weight.is_complex() else x)
        return out.abs().square().mean().float()

    def step(self) -> None:
        def evaluate() -> Tensor:
            self.optimizer.zero_grad()
            loss = self.loss()
            loss.backward()
            return loss

        if isinstance(self.optimizer, torch.optim.LBFGS):
            self.optimizer.step(evaluate)
        elif self.scaler is not None:
            self.optimizer.zero_grad()
            self.scaler.scale(self.loss()).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            evaluate()
            self.optimizer.step()
        for thing in self.more:
            if isinstance(thing, lr_scheduler.ReduceLROnPlateau):
                thing.step(1.0)
            elif isinstance(thing, lr_scheduler.LRScheduler):
                thing.step()
            elif isinstance(thing, AveragedModel):
                assert self.model is not None
                thing.update_parameters(self.model)

    def bits(self) -> Any:
        """Everything there is, copied by means of its own."""
        state: list[Any] = [_described(o) for o in self.objects]
        state += [torch.get_rng_state(), random.getstate(), numpy.random.get_state(legacy=False)]
        return copy.deepcopy(state)

    def spoil(self) -> None:
        """As much damage as a bad step and a careless program can do."""
        for thing in self.objects:
            if isinstance(thing, nn.Module):
                for tensor in (*thing.parameters(), *thing.buffers()):
                    tensor.data.fill_(True if not tensor.is_floating_point() else float("nan"))
        groups, state = self.optimizer.param_groups, self.optimizer.state
        shared = torch.zeros_like(groups[0]["params"][0])
        for p in [p for group in groups for p in group["params"]]:
            p.data.fill_(float("nan"))
            p.grad = torch.full_like(p, float("nan"))
            state[p] = dict.fromkeys(state.get(p, {}), shared)  # one tensor under all names
            state[p]["new"] = torch.ones(3)
        for group in groups:
            group |= {key: 7.0 for key in ("lr", "weight_decay", "momentum") if key in group}
        for thing in self.more:
            if isinstance(thing, lr_scheduler.LRScheduler):
                thing.last_epoch += 3
            elif isinstance(thing, torch.amp.GradScaler):
                thing.update(2.0)
        torch.rand(3), random.random(), numpy.random.rand(3)


def _described(thing: Any) -> Any:
    if isinstance(thing, nn.Module):
        return {**dict(thing.named_parameters()), **dict(thing.named_buffers())}
    return thing.state_dict()


def assert_same(one: Any, other: Any, where: str = "") -> None:
    """Alike in type, shape and every bit."""
    assert type(one) is type(other), f"{where}: {type(one)} {type(other)}"
    if isinstance(one, Tensor | numpy.ndarray):
        assert (one.shape, one.dtype) == (other.shape, other.dtype), where
        assert _memory(one) == _memory(other), f"{where}: {one} {other}"
    elif isinstance(one, dict):
        assert list(one) == list(other), where
        for key in one:
            assert_same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{where}.{i}")
    else:
        assert one == other, f"{where}: {one} {other}"


def _memory(value: Any) -> bytes:
    if isinstance(value, numpy.ndarray):
        return value.tobytes()
    flat = value.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist())


class Masked(nn.Module):
    """A net with a mask of -inf, a counter that no state_dict has, and state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1))
        self.register_buffer("calls", torch.zeros(()), persistent=False)
        self.register_buffer("seen", None, persistent=False)
        self.notes = {"calls": 0}

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.notes["calls"] += 1
        self.seen = x.detach()[: 1 + self.notes["calls"] % 3]
        return (self.inner(x) @ (self.inner.weight + self.mask).softmax(-1)).sum(-1)

    def get_extra_state(self) -> Any:
        return dict(self.notes)

    def set_extra_state(self, state: Any) -> None:
        self.notes = dict(state)


def net(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), *layers, nn.Tanh(), nn.Linear(8, 2))


def adam() -> Training:
    model = net()
    return Training(model, torch.optim.Adam(model.parameters(), lr=0.01, amsgrad=True))


def sgd() -> Training:
    model = net()
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[-1].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9, nesterov=True)
    return Training(model, optimizer, lr_scheduler.MultiStepLR(optimizer, [3, 3, 9], gamma=0.5))


def lbfgs() -> Training:
    model = net()
    return Training(model, torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3, history_size=4))


def batchnorm_onecycle() -> Training:
    model = net(nn.BatchNorm1d(8), nn.Dropout(0.2))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.5, centered=True)
    return Training(model, optimizer, lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=500))


def scaler() -> Training:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01))
    return Training(model, optimizer, torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=4))


def bfloat16_with_float32_state() -> Training:
    """torch's own load_state_dict would make the state bfloat16."""
    model = net().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hook = torch.optim.Optimizer.register_step_post_hook

    @torch.no_grad()
    def average(optimizer: Any, args: Any, kwargs: Any) -> None:
        for p in optimizer.param_groups[0]["params"]:
            optimizer.state[p].setdefault("average", p.detach().float().clone()).lerp_(p.float(), 0.3)

    hook(optimizer, average)
    return Training(model, optimizer)


def averaged_plateau() -> Training:
    model = net()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
    return Training(model, optimizer, AveragedModel(model, use_buffers=True), plateau)


def chained_lambda() -> Training:
    model = net()
    optimizer = torch.optim.NAdam(model.parameters(), lr=0.01)
    warm = lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (epoch + 1))
    later = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3)
    return Training(model, optimizer, lr_scheduler.SequentialLR(optimizer, [warm, later], [5]))


def tied() -> Training:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    return Training(model, torch.optim.Rprop(model.parameters()))


def masked() -> Training:
    model = Masked()
    return Training(model, torch.optim.ASGD(model.parameters(), lr=0.01))


def no_module() -> Training:
    weights = [torch.randn(3, requires_grad=True), torch.randn((), requires_grad=True)]
    return Training(None, torch.optim.Adamax(weights, lr=0.01))


def complex_weights() -> Training:
    model = nn.Linear(4, 3, dtype=torch.complex64)
    return Training(model, torch.optim.Adam(model.parameters(), lr=0.01))


def channels_last() -> Training:
    model = nn.Sequential(nn.Unflatten(1, (2, 2, 1)), nn.Conv2d(2, 3, 1), nn.Flatten())
    model.to(memory_format=torch.channels_last)
    return Training(model, torch.optim.Adadelta(model.parameters(), lr=0.5))


TRAININGS: list[Callable[[], Training]] = [
    adam,
    sgd,
    lbfgs,
    batchnorm_onecycle,
    scaler,
    bfloat16_with_float32_state,
    averaged_plateau,
    chained_lambda,
    tied,
    masked,
    no_module,
    complex_weights,
    channels_last,
]


def seed(number: int = 0) -> None:
    torch.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)
