"""Tests that need CUDA carry the marker `gpu` and are skipped without it. Property tests try the same
examples each time, so that a change is what makes them fail; with NEW_EXAMPLES set they look for others."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import settings

settings.register_profile("the same examples", derandomize=True)
if not os.environ.get("NEW_EXAMPLES"):
    settings.load_profile("the same examples")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs CUDA"))
