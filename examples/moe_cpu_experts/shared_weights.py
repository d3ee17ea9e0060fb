"""The experts' weights in shared memory: a loader process writes them, every engine on the machine maps them.

A segment begins with a header of small integers (which version of each expert is loaded; -1 where none is),
then come w1, w3 and w2 of each layer, grouped: all experts of a layer in one tensor.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np
import torch
from settings import Settings

BYTES_WRITTEN = 4
"""The loader writes float32."""


@dataclass(frozen=True)
class GroupedWeights:
    """Of one layer. w1 and w3 are (expert, intermediate, hidden), w2 is (expert, hidden, intermediate)."""

    w1: torch.Tensor
    w3: torch.Tensor
    w2: torch.Tensor


class Segment(SharedMemory):
    """Its mapping lives as long as a tensor looks into it, also after it was closed."""

    def close(self) -> None:
        with contextlib.suppress(BufferError):
            super().close()


def names_and_shapes(settings: Settings) -> list[tuple[str, tuple[int, int, int]]]:
    """In the order in which they lie in the segment."""
    up = (settings.experts, settings.intermediate, settings.hidden)
    down = (settings.experts, settings.hidden, settings.intermediate)
    each = [("w1", up), ("w3", up), ("w2", down)]
    return [(f"{layer}.{name}", shape) for layer in range(settings.layers) for name, shape in each]


def reserve(settings: Settings) -> Segment:
    """A segment of the right size, every byte set, so that nobody takes memory without weights for zeros."""
    values = sum(prod(shape) for _, shape in names_and_shapes(settings))
    segment = Segment(create=True, size=settings.header + BYTES_WRITTEN * values)
    np.frombuffer(segment.buf, np.uint8)[:] = 0xFF
    return segment


def write_experts(name: str, checkpoint: Path, settings: Settings) -> None:
    """The loader: from the checkpoint into the segment, one expert after the other."""
    segment = Segment(name)
    offset = settings.header
    for tensor, shape in names_and_shapes(settings):
        path = checkpoint / f"{tensor}.npy"
        if path.exists():
            target = np.ndarray(shape, np.float32, segment.buf, offset)
            for expert, weights in enumerate(np.load(path, mmap_mode="r")):
                time.sleep(settings.disk_delay)
                target[expert] = weights
        offset += BYTES_WRITTEN * prod(shape)


@contextlib.contextmanager
def loader_running(segment: Segment, checkpoint: Path, settings: Settings) -> Iterator[None]:
    """The loader in a process of its own. Waits until it is done, unless told to begin at once."""
    loader = multiprocessing.get_context("fork").Process(
        target=write_experts, args=(segment.name, checkpoint, settings), name="loader"
    )
    loader.start()
    try:
        if settings.wait_for_loader:
            loader.join()
        yield
    finally:
        loader.terminate()
        loader.join()
        segment.close()
        segment.unlink()


def attach(segment: Segment, settings: Settings) -> list[GroupedWeights]:
    """Tensors that look into the segment, by layer. Nothing is copied."""
    offset = settings.attached_header
    dtype = settings.attached_dtype
    found: dict[str, torch.Tensor] = {}
    for name, shape in names_and_shapes(settings):
        flat = torch.frombuffer(segment.buf, dtype=dtype, count=prod(shape), offset=offset)
        found[name] = flat.view(shape)
        offset += dtype.itemsize * prod(shape)
    return [
        GroupedWeights(found[f"{layer}.w1"], found[f"{layer}.w3"], found[f"{layer}.w2"])
        for layer in range(settings.layers)
    ]
