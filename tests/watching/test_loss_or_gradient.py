"""Bad gradients: of a loss that is bad itself, or of a finite one that discards what its derivative meets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import nanwatch

Watch = Callable[..., nanwatch.Session]
AUDITS: list[dict[str, float]] = [{}, {"audit_seconds": 0.0, "audit_share": 0.0}]


@pytest.mark.parametrize("audit", AUDITS, ids=["audit", "replay"])
def test_a_bad_loss_that_is_differentiated_by_hand(watch: Watch, audit: dict[str, float]) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    watch(**audit)
    with pytest.raises(nanwatch.NonFiniteError) as caught:
        for step in range(6):
            shares = model(torch.randn(5, 4)).softmax(-1) * (0.0 if step == 3 else 1.0)
            loss = -torch.log(shares[:, 0]).mean()
            slopes = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for weight, slope in zip(model.parameters(), slopes, strict=True):
                    weight -= 0.1 * slope
    incident = caught.value.incident
    assert (incident.step, incident.phase, incident.seen_in) == (3, "loss", "loss")
    assert (incident.birth.op, incident.cause.id) == ("aten.log.default", "log-of-zero")


class Halo(nn.Module):
    """What `where` does not take goes through more than one op before it."""

    def __init__(self) -> None:
        super().__init__()
        self.radius = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        x = x / self.radius
        angle = torch.acos(1 / x)
        outside = angle / torch.sqrt(x * x - 1)
        return torch.where(x < 1, x, outside)


@pytest.mark.parametrize("audit", AUDITS, ids=["audit", "replay"])
def test_what_where_discards_is_the_gradients_fault(watch: Watch, audit: dict[str, float]) -> None:
    torch.manual_seed(0)
    model = Halo()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch(model, optimizer, **audit)
    with pytest.raises(nanwatch.NonFiniteError) as caught:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.rand(6)).square().mean().backward()
            optimizer.step()
    incident = caught.value.incident
    assert (incident.phase, incident.cause.id) == ("backward", "where-gradient")
