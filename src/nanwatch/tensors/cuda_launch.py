"""Launches what triton has compiled by the driver itself: all that triton does around a launch, in Python,
takes several times as long. Where anything is not as expected there is no such launch, and triton does it."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

THREADS_OF_A_WARP = 32
MOST_PARAMETERS = 16
NOT_DONE_HERE = ("global_scratch_size", "profile_scratch_size", "launch_cooperative_grid", "launch_pdl")
"""Of a kernel's metadata: what would need more than a plain launch."""


NEEDED = ("cuLaunchKernel", "cuEventRecord", "cuStreamIsCapturing")
"""Of the driver, in the order that C has them."""


class Order(ctypes.Structure):
    """What stays the same from step to step when gradients are judged on a GPU, as C has it."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in NEEDED),
        ("function", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
        ("parameters", ctypes.c_void_p),
        ("given", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("type", ctypes.c_int32),
        ("loss_type", ctypes.c_int32),
        ("aligned", ctypes.c_int32),
        ("programs", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("shared", ctypes.c_int32),
    )
    memory: Any = None
    """What it points to."""


class Launch:
    """Of a kernel that is given addresses alone, `programs` times in one dimension."""

    def __init__(self, kernel: Any, programs: int, addresses: int) -> None:
        """ValueError if this one is not to be launched so; OSError or AttributeError without a driver."""
        metadata = kernel.metadata
        if getattr(metadata, "num_ctas", 1) != 1 or any(getattr(metadata, name, 0) for name in NOT_DONE_HERE):
            raise ValueError(f"{kernel.name}: more than a plain launch")
        parameters = _parameters_of(kernel.function)
        if parameters < addresses:
            raise ValueError(f"{kernel.name}: {parameters} parameters, {addresses} addresses")
        self._values = (ctypes.c_uint64 * parameters)()  # beyond the addresses: scratch memory, of which none
        first = ctypes.addressof(self._values)
        self._places = (ctypes.c_void_p * parameters)(*range(first, first + 8 * parameters, 8))
        threads = THREADS_OF_A_WARP * metadata.num_warps
        self._fixed = (kernel.function, programs, 1, 1, threads, 1, 1, metadata.shared)
        self._launch = _driver().cuLaunchKernel
        self._addresses = addresses

    def order(self, addresses: list[int], stream: int) -> Order:
        """For C, to launch it with these addresses, of which some are others each time."""
        function, programs, _, _, threads, _, _, shared = self._fixed
        values = type(self._values)(*addresses)
        first = ctypes.addressof(values)
        places = type(self._places)(*range(first, first + ctypes.sizeof(values), 8))
        driver = [ctypes.cast(getattr(_driver(), name), ctypes.c_void_p) for name in NEEDED]
        order = Order(*driver, function, stream, ctypes.addressof(places), first)
        order.programs, order.threads, order.shared = programs, threads, shared
        order.memory = values, places
        return order

    def __call__(self, addresses: list[Any], stream: int) -> bool:
        """Whether the driver has taken it."""
        self._values[: self._addresses] = addresses
        refused: int = self._launch(*self._fixed, stream, self._places, None)
        return not refused


@functools.cache
def _driver() -> Any:
    driver = ctypes.CDLL("libcuda.so.1")
    pointer, count = ctypes.c_void_p, ctypes.c_uint
    driver.cuLaunchKernel.argtypes = [pointer, *[count] * 7, pointer, pointer, pointer]
    driver.cuFuncGetParamInfo.argtypes = [pointer, ctypes.c_size_t, pointer, pointer]
    return driver


def _parameters_of(function: int) -> int:
    """How many it has, all of 8 bytes and one behind the other."""
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    for number in range(MOST_PARAMETERS):
        if _driver().cuFuncGetParamInfo(function, number, ctypes.byref(offset), ctypes.byref(size)):
            return number
        if (offset.value, size.value) != (8 * number, 8):
            break
    raise ValueError("parameters of another kind")
