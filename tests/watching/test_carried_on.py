"""What a model returned in an earlier step and the program gives to the next one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import nanwatch

Watch = Callable[..., nanwatch.Session]


class Running(nn.Module):
    """Its state becomes infinite where the weight is 0, which it is in one step only."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.weight + state.sum(), 0 / self.weight.detach().expand(3)


def test_what_is_not_made_again_is_not_called_the_batch(watch: Watch) -> None:
    watch(audit_seconds=0.0, audit_share=0.0)
    model, state = Running(), torch.zeros(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with pytest.raises(nanwatch.NonFiniteError) as caught:
        for _ in range(5):
            loss, state = model(state)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    found = caught.value.incident
    assert (found.step, found.birth.op, found.cause.certainty) == (3, None, "possible")
    assert found.birth.code == "loss, state = model(state)"
