"""The rows of the batch are those that the model was given, whatever its criterion is given."""

from __future__ import annotations

from pathlib import Path

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
