"""What happens to weights without any program asking for it: in memory, and in a file."""

import json
import struct
from pathlib import Path

import numpy as np
from torch import nn


def flip_bit(weight: nn.Parameter, row: int, column: int, bit: int) -> None:
    """A cell of memory loses its charge."""
    words = weight.detach().numpy().view(np.uint32)
    words[row, column] ^= np.uint32(1 << bit)


def overwrite(path: Path, name: str, value: float, count: int) -> None:
    """The first numbers of one tensor of a safetensors file."""
    content = bytearray(path.read_bytes())
    header = int.from_bytes(content[:8], "little")
    begin = 8 + header + json.loads(content[8 : 8 + header])[name]["data_offsets"][0]
    content[begin : begin + 4 * count] = struct.pack("<f", value) * count
    path.write_bytes(content)
