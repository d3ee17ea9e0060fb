"""Gradients in host memory read in one call of C, which asks torch where they lie, and those of a GPU found
in one: instead of six calls for each of them.

Newer torch gives C code a table of functions (`__dlpack_c_exchange_api__`, of the DLPack standard), of which
one describes a tensor without making anything. Where there is no such table, or some gradient is not
plain, the answer is None, and the caller looks at each by itself.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from nanwatch.signals import let_through

PLAIN_TYPES = frozenset({Tensor, Parameter})
NAME = b"dlpack_exchange_api"
VERSION = 1
LOOK_CLOSER = -2
TYPES = 4

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


class _Interpreter(ctypes.Structure):
    """What C needs of torch and of Python."""

    _fields_ = (("describe", ctypes.c_void_p), ("unlock", ctypes.c_void_p), ("lock", ctypes.c_void_p))


def read_at_once(library: Any, rows: list[Tensor], numbers: Sequence[Tensor] = ()) -> list[float] | None:
    """The value of each of `numbers`, then the sum of squares over all `rows`, which is not finite when one
    of them is not. No op of torch is called: no mode, no level of functorch and no graph can notice."""
    global _heap_is_low
    if not PYTHON or not rows or _some_function_mode_is_on():
        return None
    if type(rows[0]) not in PLAIN_TYPES or not rows[0].is_cpu:
        return None  # the usual reason, asked of one
    tensors = [*rows, *numbers]
    if not PLAIN_TYPES.issuperset(map(type, tensors)):
        return None
    values = array("d", bytes(8 * len(numbers)))
    objects = array("q", map(id, tensors))
    places = objects.buffer_info()[0], len(rows), len(numbers), values.buffer_info()[0]
    threads = _threads()
    try:
        squares = LOOK_CLOSER
        if not _heap_is_low:
            squares = library.nanwatch_squares_of(PYTHON, *places, 0, threads)
        if squares == LOOK_CLOSER:
            _heap_is_low = True
            if any(map(Tensor.storage_offset, tensors)):
                return None  # of memory that was given back, torch would tell the offset as the address
            squares = library.nanwatch_squares_of(PYTHON, *places, 1, threads)
    except Exception as error:  # one that torch cannot describe: sparse, nested, wrapped
        let_through(error)
        return None
    return None if squares < 0 else [*values, squares]


class Places(NamedTuple):
    """Rows of the memory of one GPU: where each begins, how many values it has, the type of all, and whether
    all begin at multiples of 16 bytes."""

    addresses: array[int]
    counts: array[int]
    type: int
    aligned: bool


def places_of(library: Any, rows: list[Tensor], gpu: int) -> Places | None:
    """The places of gradients in a GPU's memory, if all of them are there, plain and of one type."""
    if not PYTHON or not PLAIN_TYPES.issuperset(map(type, rows)):
        return None
    room = bytes(8 * len(rows))
    objects, addresses, counts = array("q", map(id, rows)), array("q", room), array("q", room)
    first, into, sizes = (each.buffer_info()[0] for each in (objects, addresses, counts))
    try:
        found = library.nanwatch_places_of(PYTHON, first, len(rows), gpu, into, sizes)
    except Exception as error:  # one that torch cannot describe
        let_through(error)
        return None
    return None if found < 0 else Places(addresses, counts, found % TYPES, found >= TYPES)


_threads = torch.get_num_threads
_heap_is_low = False
"""Where programs have their memory at low addresses, those of tensors do not tell whether they have any."""


def _python() -> int | None:
    describe = _describe()
    if describe is None:
        return None
    taken = (
        ctypes.cast(f, ctypes.c_void_p).value for f in (_api.PyEval_SaveThread, _api.PyEval_RestoreThread)
    )
    _kept.append(_Interpreter(describe, *taken))
    return ctypes.addressof(_kept[0])


_api = ctypes.pythonapi
_kept: list[_Interpreter] = []


def _describe() -> int | None:
    """The address of torch's function, which takes a tensor and fills in a description of it."""
    capsule = getattr(Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    table = _Table.from_address(kind(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, NAME))
    return table.describe if table.major == VERSION else None


PYTHON = _python()
"""Where C finds it; None with an older torch."""
