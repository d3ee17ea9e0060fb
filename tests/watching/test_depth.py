"""A model that calls itself may go nearly as deep under a watch as without one."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import nn

import nanwatch

LEVELS = 20


class Nested(nn.Module):
    def forward(self, x: torch.Tensor, level: int) -> int:
        if level:
            return int(self(x, level - 1))
        frame, deep = sys._getframe(), 0
        while frame is not None:
            frame, deep = frame.f_back, deep + 1
        return deep


def frames_each() -> float:
    model, x = Nested(), torch.ones(1)
    return (model(x, LEVELS) - model(x, 0)) / LEVELS


def test_each_call_that_is_traced_takes_one_frame_more(watch: Callable[..., nanwatch.Session]) -> None:
    plain = frames_each()
    with watch() as session:
        assert session.watcher.live is not None and session.watcher.live.active
        assert frames_each() <= plain + 1
