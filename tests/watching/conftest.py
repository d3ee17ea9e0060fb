from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))

from nursery import Nursery
from workshop import Workshop

import nanwatch


@pytest.fixture
def workshop(tmp_path: Path, nursery: Nursery) -> Workshop:
    folder = tmp_path / "work"
    folder.mkdir()
    return Workshop(folder, nursery)


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANWATCH_LANG", "en")
    torch.set_num_threads(1)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., nanwatch.Session]]:
    """`nanwatch.watch` that writes to the test's folder and is closed whatever happens."""
    opened: list[nanwatch.Session] = []

    def start(*watched: Any, **options: Any) -> nanwatch.Session:
        options.setdefault("dir", tmp_path / "run")
        gc.collect()  # what an earlier test of this process left behind is no part of this program
        opened.append(nanwatch.watch(*watched, **options))
        return opened[-1]

    yield start
    for session in reversed(opened):
        session.watcher.close()
        session.close()
