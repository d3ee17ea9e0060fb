from __future__ import annotations

from pathlib import Path

import pytest
from nursery import Nursery
from workshop import Workshop


@pytest.fixture
def workshop(tmp_path: Path, nursery: Nursery) -> Workshop:
    folder = tmp_path / "work"
    folder.mkdir()
    return Workshop(folder, nursery)
