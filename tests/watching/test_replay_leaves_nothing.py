"""A step that is run again uses what the program's own code used, and leaves all of it as it was."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from small_training import assert_same
from torch import nn

import nanwatch

Watch = Callable[..., nanwatch.Session]
WITHOUT_AUDIT = {"audit_seconds": 0.0, "audit_share": 0.0}
BAD = 3


class Wild(nn.Module):
    """Uses up what it is given, keeps tensors of its own, draws from everybody's generators."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.generator = torch.Generator().manual_seed(3)
        self.seen = torch.zeros(4)

    def forward(self, batch: dict[str, Any], history: list[torch.Tensor], rows: Iterator[int]) -> Any:
        x = batch.pop("x")
        self.seen.add_(x.detach().sum(dim=0))
        noise = torch.rand(4, generator=self.generator) * random.random() * numpy.random.randn()
        out = self.linear(x + noise)[list(rows)]
        history.append(out.detach())
        return out.pow(2).sum(dim=1).sqrt() if len(history) == BAD + 1 else out.sum(dim=1)


def train(model: Wild, steps: int = 6) -> list[Any]:
    """Weights are updated in the middle of the backward, by hooks; step BAD is bad for the last of them."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    history: list[torch.Tensor] = []
    last = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([last], lr=0.1)

    def update(parameter: torch.Tensor) -> Any:
        def hook(gradient: torch.Tensor) -> torch.Tensor:
            parameter.data.add_(gradient.nan_to_num(0.0, 0.0, 0.0), alpha=-0.01)
            return torch.zeros_like(gradient)

        return parameter.register_hook(hook)

    handles = [update(parameter) for parameter in model.parameters()]
    for step in range(steps):
        batch = {"x": torch.randn(3, 4), "step": step}
        length = (last - last.detach() if step == BAD else last).pow(2).sqrt()
        loss = (model(batch, history, iter([0, 2])) * length).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == BAD:
            last.data.fill_(0.5)
    for handle in handles:
        handle.remove()
    return [
        model.state_dict(),
        model.seen,
        model.seen._version,
        model.generator.get_state(),
        history,
        last.detach(),
        torch.get_rng_state(),
        random.getstate(),
        list(numpy.random.get_state()[1]),
    ]


def fresh() -> Wild:
    torch.manual_seed(1)
    return Wild()


def incident(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run" / "incidents" / "0001" / "incident.json").read_text())
    return found


@pytest.mark.filterwarnings("ignore")
def test_a_replay_leaves_the_program_as_it_was(watch: Watch, tmp_path: Path) -> None:
    expected = train(fresh())
    session = watch(policy="observe", **WITHOUT_AUDIT)
    found = train(fresh())
    session.close()
    assert_same(found, expected)
    told = incident(tmp_path)
    assert (told["phase"], told["located_by"], told["step"]) == ("backward", "replay", BAD)
    assert "replay" not in "".join(told["notes"]), "the model gave the same again"


@pytest.mark.filterwarnings("ignore")
def test_a_generator_that_was_used_up_is_said_to_be(watch: Watch, tmp_path: Path) -> None:
    class Chunks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(3, 1)

        def forward(self, chunks: Iterator[torch.Tensor]) -> torch.Tensor:
            outs = [self.out(chunk.log()).mean() for chunk in chunks]
            return torch.stack(outs).sum() / len(outs) if outs else self.out(torch.zeros(3)).log()

    model = Chunks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch(model, optimizer, **WITHOUT_AUDIT)
    with pytest.raises(nanwatch.NonFiniteError):
        loss = model(torch.zeros(3) for _ in range(2))
        loss.backward()
        optimizer.step()
    told = incident(tmp_path)
    assert (told["located_by"], told["birth"]["op"], told["phase"]) == ("recorded facts", None, "forward")
    assert "only once" in "".join(told["notes"])


def test_every_transform_is_the_same_watched(watch: Watch) -> None:
    net = nn.Linear(3, 2)
    x, v = torch.randn(3), torch.randn(4, 3)

    def results() -> list[Any]:
        func = torch.func
        out, pull = func.vjp(net, x)
        weights = {name: p * 2 for name, p in net.named_parameters()}
        return [
            func.vmap(net)(v),
            func.grad(lambda x: net(x).sum())(x),
            func.grad_and_value(lambda x: net(x).pow(2).sum())(x),
            func.jacrev(net)(x),
            func.jacfwd(net)(x),
            func.hessian(lambda x: net(x).pow(3).sum())(x),
            func.jvp(net, (x,), (x,)),
            (out, pull(torch.ones(2))),
            func.functional_call(net, weights, (x,)),
            func.vmap(func.grad(lambda w, x: func.functional_call(net, w, (x,)).sum()), (None, 0))(
                weights, v
            ),
        ]

    expected = [torch.utils._pytree.tree_map(torch.Tensor.detach, r) for r in results()]
    session = watch()
    found = [torch.utils._pytree.tree_map(torch.Tensor.detach, r) for r in results()]
    assert not session.watcher.shield.broken
    session.close()
    assert_same(found, expected)


def test_a_replay_repeats_no_warning(watch: Watch, tmp_path: Path) -> None:
    class Warns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            warnings.warn("thin ice", UserWarning, stacklevel=1)
            return (self.out(x) * 0).sqrt()

    with warnings.catch_warnings(record=True, action="always") as said:
        session = watch(policy="observe", **WITHOUT_AUDIT)
        model = Warns()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        session.close()
    assert incident(tmp_path)["located_by"] == "replay"
    assert [str(w.message) for w in said].count("thin ice") == 1
