"""What is left of a training: training_history.csv for pandas, event files for TensorBoard."""

from __future__ import annotations

import csv
from pathlib import Path


class History:
    def __init__(self, folder: Path, tensorboard: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "training_history.csv"
        self.rows: list[dict[str, float]] = []
        self.writer = _writer(folder) if tensorboard else None

    def add(self, epoch: int, **values: float) -> None:
        """One more epoch. The file is complete after each, whatever happens in the next."""
        self.rows.append({"epoch": epoch, **values})
        with self.path.open("w", newline="") as file:
            table = csv.DictWriter(file, fieldnames=list(self.rows[0]))
            table.writeheader()
            table.writerows(self.rows)
        if self.writer is not None:
            for name, value in values.items():
                self.writer.add_scalar(name, value, epoch)
            self.writer.flush()


def _writer(folder: Path):
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        print("TensorBoard is not installed: only training_history.csv is written.")
        return None
    return SummaryWriter(folder)
