"""Optimizers of a program's own: the step that is not made leaves nothing behind in them, and everything that
somebody else holds of them stays the same object."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

sys.path.insert(0, str(Path(__file__).parents[1] / "watching"))

from small_training import state_of
from test_skip import assert_skipped_is_never_came, batches, network


def weights(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


class Noisy(Optimizer):
    """Draws, whatever the gradients are."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in weights(self):
            assert p.grad is not None
            p.add_(p.grad, alpha=-0.01).add_(torch.randn_like(p), alpha=1e-3)


class OneVector(Optimizer):
    """The moments of all weights, with views of them in the state."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), {"lr": 0.01})
        self.moments = torch.zeros(sum(p.numel() for p in weights(self)))
        for p, view in zip(weights(self), self._views(), strict=True):
            self.state[p]["moment"] = view

    def _views(self) -> list[Tensor]:
        pieces = self.moments.split([p.numel() for p in weights(self)])
        return [piece.view_as(p) for p, piece in zip(weights(self), pieces, strict=True)]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.moments.mul_(0.9).add_(torch.cat([p.grad.flatten() for p in weights(self)]))  # type: ignore[union-attr]
        for p, view in zip(weights(self), self._views(), strict=True):
            p.add_(view, alpha=-0.01)


class KnowsItsLayers(Optimizer):
    """In its groups, and has a state for each of them."""

    def __init__(self, model: nn.Module) -> None:
        layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
        super().__init__([{"params": list(m.parameters()), "layer": m} for m in layers], {})
        for layer in layers:
            layer.register_forward_pre_hook(lambda m, given: self.state[m].update(seen=given[0].detach()))

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            size = self.state[group["layer"]]["seen"].square().mean()
            for p in group["params"]:
                p.sub_(0.01 * p.grad / (1 + size))


class Around(Optimizer):
    """Steps another one, counts, and keeps slow weights."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), {})
        self.inner, self.steps = Adam(model.parameters(), lr=0.01), 0
        self.slow = [p.detach().clone() for p in weights(self)]

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.inner.step()
        self.steps += 1
        if self.steps % 3 == 0:
            with torch.no_grad():
                for p, slow in zip(weights(self), self.slow, strict=True):
                    p.copy_(slow.lerp_(p, 0.5))


class Marked(Tensor):
    """A class of the program's own."""


class AllKinds(Optimizer):
    """Of state: a tensor of another class, a parameter, one over memory of NumPy, one that repeats its
    values, one that grows, and a large one among its attributes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), {})
        self.large = torch.zeros(600, 600)
        for p in weights(self):
            self.state[p] = {
                "marked": torch.zeros_like(p.detach()).as_subclass(Marked),
                "parameter": nn.Parameter(torch.zeros_like(p)),
                "of numpy": torch.from_numpy(numpy.zeros(3, dtype=numpy.float32)),
                "repeated": torch.zeros(1).expand(4),
                "growing": torch.zeros(1),
            }

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.large += 1
        for p in weights(self):
            state = self.state[p]
            for name in ("marked", "parameter"):
                state[name].mul_(0.9).add_(p.grad)
            state["of numpy"] += 1
            state["repeated"] = (state["repeated"][:1] + 1).expand(4)
            state["growing"].resize_(len(state["growing"]) + 1).fill_(float(self.large[0, 0]))
            p.sub_(0.01 * (state["marked"].as_subclass(Tensor) + state["parameter"]))


def with_a_closure(optimizer: Optimizer, model: nn.Module, x: Tensor) -> None:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)


def plainly(optimizer: Optimizer, model: nn.Module, x: Tensor) -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def kept_by(optimizer: Optimizer) -> list[Any]:
    layers = [m for m in optimizer.state if isinstance(m, nn.Module)]
    state = [optimizer.state[p] for p in weights(optimizer)] if not layers else []
    if isinstance(optimizer, Around):
        return [state, optimizer.steps, optimizer.slow, optimizer.inner.state_dict()]
    if isinstance(optimizer, AllKinds):
        plain = [{k: v.detach().as_subclass(Tensor) for k, v in each.items()} for each in state]
        return [plain, optimizer.large]
    return [state, getattr(optimizer, "moments", None)]


@pytest.mark.parametrize("kind", [Noisy, OneVector, KnowsItsLayers, Around, AllKinds])
def test_an_optimizer_of_its_own(tmp_path: Path, kind: Callable[[nn.Module], Optimizer]) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network(dropout=False)
        optimizer = kind(model)
        for x in batches(bad, left_out):
            plainly(optimizer, model, x)
        layers = [group["layer"] for group in optimizer.param_groups if "layer" in group]
        assert all(any(layer is m for m in model) for layer in layers)  # type: ignore[attr-defined]
        return [*state_of(model), kept_by(optimizer), torch.get_rng_state()]

    assert_skipped_is_never_came(play, tmp_path)


class Plain(SGD):
    """Of the program's own, and nothing else."""


@pytest.mark.parametrize("how", [plainly, with_a_closure])
@pytest.mark.parametrize("kind", [Plain, Adam])
def test_a_rate_and_moments_that_the_program_holds(
    tmp_path: Path, kind: type[Any], how: Callable[[Optimizer, nn.Module, Tensor], None]
) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        model = network(dropout=False)
        rate = torch.tensor(0.01)
        optimizer = kind(model.parameters(), lr=rate, **({"momentum": 0.9} if kind is Plain else {}))
        first, held = next(model.parameters()), None
        for x in batches(bad, left_out):
            rate.mul_(0.9) if x.isfinite().all() else None
            how(optimizer, model, x)
            held = held if held is not None else next(iter(optimizer.state[first].values()))
        assert held is next(iter(optimizer.state[first].values()))
        return [*state_of(model, optimizer), rate]

    assert_skipped_is_never_came(play, tmp_path)
