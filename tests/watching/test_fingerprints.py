"""Checksums of weights and moments: they tell which value changed, and taking them changes nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
import torch
from small_training import assert_same, network, state_of, train
from torch import nn

import nanwatch
from nanwatch.tensors import compiled
from nanwatch.tensors.checksums import COLUMNS, _by_torch, checksums
from nanwatch.watching.fingerprints import Fingerprints

Watch = Callable[..., nanwatch.Session]


def of(model: nn.Module, *optimizers: torch.optim.Optimizer) -> Fingerprints:
    taken = Fingerprints()
    taken.model_called(model, 0)
    for optimizer in optimizers:
        taken.updated(optimizer, 1)
    return taken


def turn_over(tensor: torch.Tensor, at: int, bit: int) -> None:
    """Behind torch's back."""
    word = ctypes.c_uint32.from_address(tensor.data_ptr() + tensor.element_size() * at)
    word.value ^= 1 << bit


@pytest.mark.parametrize("bit", [0, 17, 30, 31])
@pytest.mark.parametrize("at", [0, 5, COLUMNS - 1, COLUMNS, 2 * COLUMNS + 7])
def test_one_bit_in_a_large_weight(at: int, bit: int) -> None:
    model = nn.Linear(50, 60)
    taken = of(model)
    assert taken.changed() == []
    before = float(model.weight.detach().view(-1)[at])
    turn_over(model.weight, at, bit)
    (found,) = taken.changed()
    assert found.tensor is model.weight
    assert (found.name, found.step) == ("weight", 0)
    assert found.one is not None
    assert (found.one.place, found.one.bits) == ((at // 50, at % 50), 1 << bit)
    assert (found.one.before, found.one.value) == (before, float(model.weight.detach().view(-1)[at]))
    assert abs(found.difference) == 1 << bit


def test_two_values_are_no_single_place() -> None:
    model = nn.Linear(50, 60)
    taken = of(model)
    turn_over(model.weight, 3, 10)
    turn_over(model.weight, 8, 29)
    (found,) = taken.changed()
    assert found.one is None


def test_what_torch_counts_as_written_has_not_changed_by_itself() -> None:
    model = nn.Linear(4, 1)
    taken = of(model)
    train(model, torch.optim.Adam(model.parameters(), lr=0.1), steps=1)
    assert taken.changed() == []
    model.weight.data = torch.zeros_like(model.weight)
    assert taken.changed() == []


def test_moments_have_their_names() -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    taken = of(model, optimizer)
    turn_over(optimizer.state[model.weight]["exp_avg_sq"], 6, 31)
    assert [(found.name, found.step) for found in taken.changed()] == [("exp_avg_sq of weight", 1)]


def test_what_is_gone_is_forgotten() -> None:
    taken = of(nn.Linear(4, 3))
    assert taken.changed() == []
    taken.model_called(nn.Linear(2, 2), 1)
    assert len(taken.taken) == 2


def test_weights_that_were_bad_at_first() -> None:
    model = network()
    with torch.no_grad():
        model[3].weight[0, 2] = float("inf")
    assert of(model).bad_at_first == {"3.weight"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bool, torch.int64, torch.complex64])
def test_every_dtype_has_its_sums(dtype: torch.dtype) -> None:
    tensor = torch.ones(3, 5).to(dtype)
    other = tensor.clone()
    other[1, 2] = 0
    of_tensor, of_clone, of_other = checksums([tensor, tensor.clone(), other])
    assert of_tensor == of_clone != of_other


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("count", [1, 7, COLUMNS, 3 * COLUMNS + 5])
def test_torch_gives_the_same_sums(dtype: torch.dtype, count: int) -> None:
    assert compiled.wait_until_ready()
    tensor = (torch.randn(count, generator=torch.Generator().manual_seed(count)) * 50).to(dtype)
    assert checksums([tensor]) == [_by_torch(tensor)]


def test_another_default_device() -> None:
    tensor = torch.arange(12.0)
    with torch.device("meta"):
        assert _by_torch(tensor) == _by_torch(torch.arange(12.0, device="cpu"))


def test_taking_them_leaves_training_bit_for_bit(watch: Watch) -> None:
    def trained() -> list[object]:
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        train(model, optimizer, steps=12)
        models.append(model)
        return [*state_of(model, optimizer), torch.get_rng_state()]

    models: list[nn.Sequential] = []
    plain = trained()
    with watch(mode="host", audit_seconds=60) as session:
        watched = trained()
        taken = session.watcher.fingerprints
        assert taken is not None
        steps = {each.name: each.step for each in taken.taken.values()}
    assert_same(watched, plain)
    assert steps["0.weight"] == steps["exp_avg of 0.weight"] == 11
    assert {found.name for found in taken.changed()} <= {"2.running_mean", "2.running_var"}
