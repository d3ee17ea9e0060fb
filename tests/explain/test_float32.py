"""The step in float32: every value as a float32 model would give it, and nothing of the program changed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from nanwatch.explain.experiments.float32 import Widening, wide_weights

MODELS = {
    "linear": lambda: nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4)),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)),
    "attention": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
}


def gradients(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    loss = model(x).square().mean() * 1e3
    return list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_model_computes_as_its_float32_copy(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().to(dtype)
    wide = copy.deepcopy(model).float()
    x = torch.randn(3, 4) if name != "attention" else torch.randn(3, 2, 4)
    x = x.to(dtype)
    with wide_weights([model]), Widening():
        found = gradients(model, x)
    for one, other in zip(found, gradients(wide, x.float()), strict=True):
        assert one.dtype is torch.float32
        assert torch.equal(one, other)


def test_autocast_makes_nothing_narrow() -> None:
    torch.manual_seed(0)
    model, x = MODELS["linear"](), torch.randn(3, 4)
    expected = gradients(model, x)
    with torch.autocast("cpu", torch.float16), Widening():
        found = gradients(model, x)
    torch.clear_autocast_cache()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_the_weights_are_the_programs_own_again() -> None:
    model = nn.Sequential(nn.LSTM(3, 4), nn.Linear(4, 2)).half()
    tied = nn.Linear(4, 2).half()
    tied.weight = model[1].weight
    before = dict(model.named_parameters())
    flat = model[0]._flat_weights
    with pytest.raises(ZeroDivisionError), wide_weights([model, tied]):
        assert model[1].weight.dtype is torch.float32
        assert tied.weight is model[1].weight
        raise ZeroDivisionError
    assert all(p is before[n] for n, p in model.named_parameters())
    assert tied.weight is model[1].weight
    assert model[0]._flat_weights is flat


def test_a_narrow_tensor_that_is_changed_in_place_stays_narrow_and_is_changed() -> None:
    kept = torch.zeros(3, dtype=torch.float16)
    with Widening():
        returned = kept.add_(torch.ones(3, dtype=torch.float16))
        view = kept[:2]
        view.mul_(3)
    assert returned is kept
    assert kept.tolist() == [3.0, 3.0, 1.0]
    assert kept.dtype is torch.float16


def test_casts_and_constants_are_wide() -> None:
    with Widening():
        assert torch.tensor([1e5]).half().item() == 1e5
        assert torch.zeros(2, dtype=torch.float16).dtype is torch.float32
        assert torch.ones(2, dtype=torch.int64).dtype is torch.int64
