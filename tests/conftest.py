"""Tests that need CUDA carry the marker `gpu` and are skipped without it. Property tests try the same
examples each time, so that a change is what makes them fail; with NEW_EXAMPLES set they look for others.
Programs run in one nursery per process of pytest, where the start of Python is not what is tested."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch._dynamo  # every optimizer imports it
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent / "cases"))

from nursery import Nursery

settings.register_profile("the same examples", derandomize=True)
if not os.environ.get("NEW_EXAMPLES"):
    settings.load_profile("the same examples")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs CUDA"))


@pytest.fixture(autouse=True, scope="module")
def only_new_objects() -> None:
    """What was imported so far is no garbage: whoever looks through all objects need not pass it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as running:
        yield running
