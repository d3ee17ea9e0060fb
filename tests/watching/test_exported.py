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
