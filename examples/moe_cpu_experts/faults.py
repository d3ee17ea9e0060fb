"""What can go wrong: a setting that does not fit, or a checkpoint that is not what it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from model import ALPHABET
from settings import Job


def _leave_alone(folder: Path) -> None:
    """The checkpoint is good."""


@dataclass(frozen=True)
class Fault:
    sentence: str
    settings: tuple[tuple[str, Any], ...] = ()
    gains: tuple[tuple[str, float], ...] = ()
    damage: Callable[[Path], None] = _leave_alone
    needs_gpu: bool = False

    def changed(self, job: Job) -> Job:
        return replace(job, settings=replace(job.settings, **dict(self.settings)), gains=self.gains)


def half(**settings: Any) -> tuple[tuple[str, Any], ...]:
    return (("compute_dtype", torch.float16), *settings.items())


def spoil_embedding(folder: Path) -> None:
    file = folder / "embedding.weight.npy"
    table = np.load(file)
    table[ALPHABET.index("w"), 5:9] = np.nan
    np.save(file, table)


def spoil_bytes(folder: Path) -> None:
    """A sector of the file that was read as ones."""
    file = folder / "1.w1.npy"
    bytes_of = bytearray(file.read_bytes())
    bytes_of[-4096:-3584] = b"\xff" * 512
    file.write_bytes(bytes_of)


def lose_file(folder: Path) -> None:
    (folder / "0.w3.npy").unlink()


def shrink_table(folder: Path) -> None:
    """A checkpoint of a smaller model: two experts fewer."""
    file = folder / "1.w2.npy"
    np.save(file, np.load(file)[:-2])


FAULTS = {
    "hidden-bad": Fault(
        "A row of the embedding in the checkpoint is NaN: hidden states are bad before they go to the host.",
        damage=spoil_embedding,
    ),
    "empty-group": Fault(
        "Experts without a token are computed, too, and the mean over their tokens divides by zero.",
        settings=(("fixed_groups", True),),
    ),
    "w1-bytes": Fault("A sector of the file that holds w1 is damaged.", damage=spoil_bytes),
    "w1-mapping": Fault(
        "The engine expects a shorter header in the shared segment than the loader leaves: "
        "w1 begins with bytes of the header.",
        settings=(("attached_header", 128),),
    ),
    "shared-dtype": Fault(
        "The loader wrote float32, the engine takes the same bytes for float16.",
        settings=(("attached_dtype", torch.float16),),
    ),
    "w3-unwritten": Fault(
        "The file of one layer's w3 is missing, and the loader goes on: that part of the segment is never "
        "written.",
        damage=lose_file,
    ),
    "w2-shape": Fault(
        "w2 in the checkpoint has fewer experts than the model: the last ones are never written.",
        damage=shrink_table,
    ),
    "w1-overflow": Fault(
        "The gains that were folded into w1 make the first einsum too large for float16.",
        settings=half(),
        gains=(("w1", 3e4),),
    ),
    "w3-overflow": Fault(
        "The gains that were folded into w3 make the second einsum too large for float16.",
        settings=half(),
        gains=(("w3", 3e4),),
    ),
    "activation-overflow": Fault(
        "SiLU written with an exponential, in float16: exp of a gate above 11 is infinite.",
        settings=half(activation="swish"),
        gains=(("w1", 8.0),),
    ),
    "product-overflow": Fault(
        "Activation and w3 are within the range of float16, their product is not.",
        settings=half(),
        gains=(("w1", 500.0), ("w3", 500.0)),
    ),
    "w2-overflow": Fault(
        "The sum over the intermediate values is too large for float16 in the einsum with w2.",
        settings=half(),
        gains=(("w1", 20.0), ("w3", 20.0), ("w2", 1000.0)),
    ),
    "copy-overflow": Fault(
        "The outputs of the experts are copied to the device as float16, which cannot hold them.",
        settings=(("transfer_dtype", torch.float16),),
        gains=(("w2", 3e5),),
    ),
    "scatter-overflow": Fault(
        "The outputs fit float16, and with the scale of the router they no longer do when they are added up.",
        settings=(("transfer_dtype", torch.float16), ("routed_scale", 16.0)),
        gains=(("w2", 1e4),),
    ),
    "scatter-ids": Fault(
        "The empty places of a group have the token id -1, and nobody leaves them out before the scatter.",
        settings=(("padding_id", -1),),
    ),
    "worker-race": Fault(
        "All workers stack their inputs in one buffer, without a lock.",
        settings=(("own_scratch", False), ("experts_per_task", 2), ("link_delay", 0.001)),
    ),
    "loader-race": Fault(
        "The engine does not wait for the loader, which is still writing the weights.",
        settings=(("wait_for_loader", False), ("disk_delay", 0.1)),
    ),
    "copy-early": Fault(
        "The workers do not wait for the copy of the hidden states to the host.",
        settings=(("wait_for_copies", False),),
        needs_gpu=True,
    ),
}
