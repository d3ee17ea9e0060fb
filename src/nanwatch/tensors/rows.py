"""Where gradients lie in host memory, asked of torch in one call instead of six for each of them.

Newer torch gives C code a table of functions (`__dlpack_c_exchange_api__`, of the DLPack standard), of which
one describes a tensor without making anything. Where there is no such table, or some gradient is not
plain, the answer is None, and the caller looks at each by itself.
"""

from __future__ import annotations

import ctypes
from array import array
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

PLAIN_TYPES = frozenset({Tensor, Parameter})
NAME = b"dlpack_exchange_api"
VERSION = 1

_some_function_mode_is_on = torch._C._is_torch_function_mode_enabled


class _Table(ctypes.Structure):
    """Of version 1: its header, then functions."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("earlier", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("own", ctypes.c_void_p),
        ("give", ctypes.c_void_p),
        ("describe", ctypes.c_void_p),
    )


class Rows(NamedTuple):
    """Of float tensors whose values fill host memory without gaps."""

    addresses: array[int]
    counts: array[int]
    types: array[int]

    @property
    def places(self) -> tuple[int, int, int]:
        """Of the columns themselves, for C."""
        addresses, counts, types = self
        return addresses.buffer_info()[0], counts.buffer_info()[0], types.buffer_info()[0]


def rows_of(library: Any, tensors: list[Tensor]) -> Rows | None:
    """No torch op is called, so neither a mode nor a level of functorch nor autograd can notice."""
    if not DESCRIBE or not tensors or _some_function_mode_is_on():
        return None
    if type(tensors[0]) not in PLAIN_TYPES or not tensors[0].is_cpu:
        return None  # the usual reason, asked of one
    if not PLAIN_TYPES.issuperset(map(type, tensors)):
        return None
    count = len(tensors)
    objects = array("q", map(id, tensors))
    rows = Rows(array("q", bytes(8 * count)), array("q", bytes(8 * count)), array("B", bytes(count)))
    try:
        if any(map(Tensor.storage_offset, tensors)):
            return None  # of memory that was given back, torch would tell the offset as the address
        plain = library.nanwatch_rows(DESCRIBE, objects.buffer_info()[0], count, *rows.places)
    except Exception:  # one that torch cannot describe: sparse, nested, wrapped
        return None
    return rows if plain == count else None


def _describe() -> int | None:
    """The address of torch's function, which takes a tensor and fills in a description of it."""
    capsule = getattr(Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    table = _Table.from_address(kind(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, NAME))
    return table.describe if table.major == VERSION else None


DESCRIBE = _describe()
