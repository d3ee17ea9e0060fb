"""Whether memory is mapped so that other processes see what is written to it, and write it themselves."""

from __future__ import annotations

from torch import Tensor

MAPS = "/proc/self/maps"
"""A line per mapping: "7f3a00000000-7f3a00010000 rw-s …"; s is for shared. Only Linux has it."""


def is_shared_mapping(tensor: Tensor) -> bool:
    """A segment of shared memory or a file; False where it cannot be known."""
    if tensor.device.type != "cpu" or tensor.numel() == 0:
        return False
    try:
        address = tensor.data_ptr()
        with open(MAPS) as lines:
            return any(_holds(line, address) for line in lines)
    except (OSError, RuntimeError):
        return False


def _holds(line: str, address: int) -> bool:
    span, rights = line.split()[:2]
    first, _, end = span.partition("-")
    return rights.endswith("s") and int(first, 16) <= address < int(end, 16)
