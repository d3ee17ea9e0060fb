"""A model that is exported while it is watched: torch then runs ops that are no kernels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import nanwatch

Watch = Callable[..., nanwatch.Session]


class Heat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, bias=False)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        heat = self.conv(image).abs()
        return heat / heat.amax(dim=(2, 3), keepdim=True)


def test_what_was_exported_is_judged_and_its_op_found(watch: Watch) -> None:
    with watch() as session, torch.no_grad(), pytest.raises(nanwatch.NonFiniteError):
        served = torch.export.export(Heat().eval(), (torch.rand(2, 1, 6, 6),)).module()
        assert not session.watcher.shield.broken
        served(torch.rand(2, 1, 6, 6))
        image = torch.rand(2, 1, 6, 6)
        image[1] = 0.0
        served(image)
    (incident,) = session.incidents
    assert (incident.birth.op, incident.birth.samples) == ("aten.div.Tensor", (1,))
    assert incident.cause.id == "divide-by-zero"


def trained() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    return model


def exported(model: nn.Module) -> list[str]:
    sizes = ({0: torch.export.Dim("rows", min=2)},)
    program = torch.export.export(model.eval(), (torch.randn(3, 4),), dynamic_shapes=sizes)
    return [str(node.target) for node in program.graph.nodes]


def made_by_tracing(call: Callable[[torch.Tensor], torch.Tensor], mode: str) -> list[str]:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda x: (call(x) * 2).sum(), tracing_mode=mode)(torch.randn(3, 4)).graph
    return [str(node.target) for node in graph.nodes]


GRAPHS: dict[str, Callable[[nn.Module], list[str]]] = {
    "export": exported,
    "make_fx": lambda model: made_by_tracing(model, "real"),
    "make_fx, symbolic": lambda _: made_by_tracing(torch.tanh, "symbolic"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_after_training_a_graph_has_nothing_of_ours(watch: Watch, name: str) -> None:
    plain = GRAPHS[name](trained())
    with watch() as session:
        assert GRAPHS[name](trained()) == plain
        assert not session.watcher.shield.broken
        assert session.watcher.outside.listening


def test_a_training_of_fake_tensors_is_none(watch: Watch) -> None:
    from torch._subclasses import FakeTensorMode

    with watch() as session:
        with FakeTensorMode():
            model = nn.Linear(8, 8)
            optimizer = torch.optim.Adam(model.parameters())
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.randn(2, 8)).sum().backward()
                optimizer.step()
        assert not session.watcher.shield.broken and session.watcher.step == 0
        trained()
        assert session.watcher.step == 3
