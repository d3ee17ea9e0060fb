"""A backward from a tensor of many values, with a gradient that the program gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nanwatch

FORBIDDEN = torch.tensor([False, True, False, False, True, False])
WITHOUT_AUDIT = {"audit_seconds": 0.0, "audit_share": 0.0}


def training(spoil: Callable[[Tensor], Tensor], seed: Callable[[Tensor], Tensor], **how: Any) -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, **how)
    for step in range(4):
        logits = model(torch.randn(4, 8))
        logits = (spoil(logits) if step == 2 else logits).masked_fill(FORBIDDEN, -torch.inf)
        optimizer.zero_grad()
        torch.autograd.backward([logits], [seed(logits.detach())])
        optimizer.step()


def same(logits: Tensor) -> Tensor:
    return logits


def nothing_for_masked(logits: Tensor) -> Tensor:
    return torch.where(FORBIDDEN, 0.0, torch.full_like(logits, 0.1))


@pytest.mark.parametrize("options", [{}, WITHOUT_AUDIT])
def test_a_mask_that_nothing_is_trained_with_is_fine(options: dict[str, Any], watch: Any) -> None:
    session = watch(explain=False, **options)
    training(same, nothing_for_masked)
    assert not session.incidents
    assert all(isinstance(facts.loss, float) for facts in session.history)


@pytest.mark.parametrize("options", [{}, WITHOUT_AUDIT])
def test_a_nan_beside_the_mask_is_found(options: dict[str, Any], watch: Any) -> None:
    """Though no gradient shows it: that of a linear layer does not depend on what the layer made."""
    session = watch(explain=False, **options)
    with pytest.raises(nanwatch.NonFiniteError):
        training(lambda logits: logits / logits.detach().sub(logits.detach()), nothing_for_masked)
    assert [(i.step, i.seen_in, i.birth.op) for i in session.incidents] == [(2, "loss", "aten.div.Tensor")]


@pytest.mark.parametrize("options", [{}, WITHOUT_AUDIT])
def test_an_infinity_that_is_trained_on_is_found(options: dict[str, Any], watch: Any) -> None:
    session = watch(explain=False, **options)
    with pytest.raises(nanwatch.NonFiniteError):
        training(same, torch.ones_like)
    assert [(i.step, i.seen_in) for i in session.incidents] == [(0, "loss")]


def test_device_mode_does_not_hold_back_because_of_a_mask(watch: Any) -> None:
    session = watch(explain=False, mode="device")
    training(same, nothing_for_masked, fused=True)
    session.close()
    assert not session.incidents and len(session.history) == 4


def test_device_mode_finds_a_nan_beside_the_mask(watch: Any) -> None:
    session = watch(explain=False, mode="device")
    with pytest.raises(nanwatch.NonFiniteError):
        training(lambda logits: logits / logits.detach().sub(logits.detach()), nothing_for_masked, fused=True)
        session.close()
    assert [(i.step, i.seen_in) for i in session.incidents] == [(2, "loss")]
