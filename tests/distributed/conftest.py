from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))
sys.path.insert(0, str(Path(__file__).parent.parent / "watching"))

from nursery import Nursery
from together import Together


@pytest.fixture
def together(tmp_path: Path, nursery: Nursery) -> Together:
    return Together(tmp_path, nursery)
