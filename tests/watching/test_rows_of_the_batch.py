"""The rows of the batch are those that the model was given, whatever its criterion is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import nanwatch


def test_a_criterion_may_have_the_batch_in_another_dimension(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, criterion = nn.Linear(4, 6), nn.CTCLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    signs = torch.tensor([[1, 2, 3], [4, 4, 5], [1, 3, 5], [2, 4, 1]])
    sizes = torch.full((4,), 3)
    with pytest.raises(nanwatch.NonFiniteError) as caught, nanwatch.watch(model, optimizer, dir=tmp_path):
        log_prob = model(torch.randn(4, 3, 4)).log_softmax(dim=-1).transpose(0, 1)
        criterion(log_prob, signs, sizes, sizes).backward()  # "4 4 5" has no room for a blank
        optimizer.step()
    assert caught.value.incident.birth.op == "aten._ctc_loss.Tensor"
    assert caught.value.incident.birth.samples == (1,)


def test_rows_that_were_bad_before_the_preparation_spoilt_the_others(tmp_path: Path) -> None:
    table = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    table[[1, 4], 2] = np.nan
    with pytest.raises(nanwatch.NonFiniteError) as caught, nanwatch.watch(dir=tmp_path):
        x = torch.from_numpy(table)
        x = (x - x.mean(0)) / x.std(0)
        with torch.no_grad():
            nn.Linear(3, 2)(x)
    assert caught.value.incident.birth.samples == (1, 4)
    assert caught.value.incident.cause.id == "bad-input"


@pytest.mark.parametrize("labels", [4, 9], ids=["a label a sample", "a label a frame"])
def test_the_batch_is_the_dimension_that_the_labels_have(tmp_path: Path, labels: int) -> None:
    torch.manual_seed(0)
    model, x = nn.GRU(6, 8), torch.rand(9, 4, 6)  # (time, batch, channels)
    x[5:, 2] = torch.nan
    with pytest.raises(nanwatch.NonFiniteError) as caught, nanwatch.watch(dir=tmp_path):
        states, _ = model(x)
        pooled = states.mean((0 if labels == 4 else 1, 2))
        (pooled - torch.ones(labels)).square().mean().backward()
    assert caught.value.incident.birth.samples == ((2,) if labels == 4 else (5, 6, 7, 8))


def test_weights_of_features_are_no_labels(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x, weights = nn.Linear(4, 4), torch.randn(32, 4), torch.tensor([1.0, 2.0, 1.0, 0.5])
    x[5, 1] = torch.nan
    with pytest.raises(nanwatch.NonFiniteError) as caught, nanwatch.watch(dir=tmp_path):
        (model(x).square() * weights).mean().backward()
    assert caught.value.incident.birth.samples == (5,)


def test_a_table_with_a_multiple_of_the_rows_is_not_the_batch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(3, 3), torch.randn(4, 3)
    classes = torch.tensor([0, 1, 6, 7])
    with pytest.raises(nanwatch.NonFiniteError) as caught, nanwatch.watch(dir=tmp_path):
        sums = torch.zeros(8, 3).index_add(0, classes, model(x))
        sizes = torch.zeros(8).index_add(0, classes, torch.ones(4))
        (sums / sizes[:, None]).mean().backward()  # of four classes there is none
    assert caught.value.incident.birth.op == "aten.div.Tensor"
    assert caught.value.incident.birth.samples == ()
