"""The data: three small tables, written as CSV and read back, the target in the last column."""

from pathlib import Path

import numpy as np
import torch

ROWS = 256
FEATURES = 12
SERIES = 80
TOKENS, LENGTH, CLASSES = 40, 16, 4


def customers(draw: np.random.Generator) -> np.ndarray:
    """Does a customer come back? A few of them buy three hundred times as much as the others."""
    x = draw.normal(size=(ROWS, FEATURES))
    label = x[:, :3].sum(axis=1) + 0.3 * draw.normal(size=ROWS) > 0
    x[draw.integers(0, ROWS, 4)] *= 300
    return np.column_stack([x, label])


def sales(draw: np.random.Generator) -> np.ndarray:
    """What does a shop sell tomorrow? Some are closed then."""
    days = np.arange(SERIES + 1)
    level = 1 + draw.random((ROWS, 1))
    series = level * (1 + 0.3 * np.sin(2 * np.pi * days / 7)) + 0.05 * draw.random((ROWS, SERIES + 1))
    series[draw.integers(0, ROWS, 4), -1] = 0.0
    return series


def sentences(draw: np.random.Generator) -> np.ndarray:
    """Which of four topics is a sentence about? Short ones are filled up with 0."""
    topic = draw.integers(0, CLASSES, ROWS)
    on_topic = 1 + topic[:, None] + CLASSES * draw.integers(0, 9, (ROWS, LENGTH))
    ids = np.where(draw.random((ROWS, LENGTH)) < 0.6, on_topic, draw.integers(1, TOKENS, (ROWS, LENGTH)))
    lengths = draw.integers(6, LENGTH + 1, ROWS)
    ids[np.arange(LENGTH) >= lengths[:, None]] = 0
    return np.column_stack([ids, topic])


def write(path: Path, table: np.ndarray) -> None:
    """A number that is not there becomes an empty cell, as in any export."""
    lines = [",".join("" if np.isnan(value) else f"{value:.6g}" for value in row) for row in table]
    path.write_text("\n".join(lines) + "\n")


def read(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    table = torch.from_numpy(np.genfromtxt(path, delimiter=",", dtype=np.float32))
    return table[:, :-1], table[:, -1]
