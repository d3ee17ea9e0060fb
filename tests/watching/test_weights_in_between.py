"""Weights that a program changes for one call and puts back before the update."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import nanwatch

Watch = Callable[..., nanwatch.Session]
WITHOUT_AUDIT = {"audit_seconds": 0.0, "audit_share": 0.0}


def lowered_in_place(weight: nn.Parameter) -> Callable[[], object]:
    weight.data.sub_(3.0)
    return lambda: weight.data.add_(3.0)


def set_anew(weight: nn.Parameter) -> Callable[[], object]:
    kept = weight.data
    weight.data = torch.full_like(kept, -1.0)
    return lambda: setattr(weight, "data", kept)


def a_part_of_it(weight: nn.Parameter) -> Callable[[], object]:
    with torch.no_grad():
        kept = weight[1:].clone()
        weight[1:].mul_(-1)

    def put_back() -> None:
        with torch.no_grad():
            weight[1:].copy_(kept)

    return put_back


def drawn(weight: nn.Parameter) -> Callable[[], object]:
    kept = weight.detach().clone()
    nn.init.uniform_(weight, -2.0, -1.0)
    return lambda: weight.data.copy_(kept)


CHANGES: list[Callable[[nn.Parameter], Callable[[], object]]] = [
    lowered_in_place,
    set_anew,
    a_part_of_it,
    drawn,
]


class Root(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sqrt(x * self.weight)


@pytest.mark.parametrize("change", CHANGES)
def test_the_op_is_found_with_the_weights_of_the_call(
    watch: Watch, change: Callable[[nn.Parameter], Callable[[], object]]
) -> None:
    session = watch(policy="skip", **WITHOUT_AUDIT)
    model = Root()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4):
        put_back = change(model.weight) if step == 2 else lambda: None
        optimizer.zero_grad()
        model(torch.ones(3, 2)).mean().backward()
        put_back()
        was = model.weight.data_ptr(), model.weight._version, model.weight.tolist()
        optimizer.step()
        if step == 2:
            assert (model.weight.data_ptr(), model.weight._version, model.weight.tolist()) == was
    (found,) = session.incidents
    assert (found.step, found.phase, found.birth.op) == (2, "forward", "aten.sqrt.default")
    assert (found.cause.id, found.cause.certainty) == ("invalid-domain", "proved")


def test_a_change_that_was_not_put_back_is_no_fault_of_the_machine(watch: Watch) -> None:
    session = watch(policy="observe", **WITHOUT_AUDIT)
    model = Root()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model.weight.data.neg_()
    model(torch.ones(3, 2)).mean().backward()
    model.weight.data = torch.ones(2)
    optimizer.step()
    assert session.incidents[0].cause.id != "transient-fault"


def test_a_gradient_that_is_set_anew_is_no_weight(watch: Watch) -> None:
    session = watch(policy="skip", **WITHOUT_AUDIT)
    model = Root()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4):
        optimizer.zero_grad()
        x = torch.full((3, 2), -1.0 if step == 2 else 1.0)
        model(torch.ones(3, 2)).mean().backward()
        model.weight.grad = torch.zeros(2)
        model(x).mean().backward()
        assert not session.watcher.recorder.tape.data_set
        optimizer.step()
    assert [(i.step, i.birth.op, i.cause.certainty) for i in session.incidents] == [
        (2, "aten.sqrt.default", "proved")
    ]


def assigned(weight: nn.Parameter, step: Tensor) -> None:
    weight.data = weight.data - step


def through_data(weight: nn.Parameter, step: Tensor) -> None:
    weight.data.sub_(step)


def without_gradients(weight: nn.Parameter, step: Tensor) -> None:
    with torch.no_grad():
        weight -= step


@pytest.mark.parametrize("bad_task", [0, 2])
@pytest.mark.parametrize("update", [assigned, through_data, without_gradients])
def test_an_inner_update_before_a_step_of_the_optimizer(
    watch: Watch, update: Callable[[nn.Parameter, Tensor], None], bad_task: int
) -> None:
    """First-order MAML: the bad inner loss is only met by the weights that came of it."""
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    weights = list(model.parameters())
    watch(explain=False, **WITHOUT_AUDIT)
    with pytest.raises(nanwatch.NonFiniteError) as stopped:
        for step in range(3):
            began = [p.detach().clone() for p in weights]
            for task in range(3):
                x = torch.rand(4, 2)
                spread = x.std() * (0.0 if (step, task) == (2, bad_task) else 1.0)
                for _ in range(2):
                    loss = model(x).square().mean() / spread
                    for p, g in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                        update(p, 0.01 * g)
                gradients = torch.autograd.grad(model(x).square().mean(), weights)
                for p, before, g in zip(weights, began, gradients, strict=True):
                    p.data.copy_(before)
                    p.grad = g
            optimizer.step()
    found = stopped.value.incident
    assert (found.step, found.phase, found.birth.op, found.birth.code) == (
        2,
        "loss",
        "aten.div.Tensor",
        "loss = model(x).square().mean() / spread",
    )
