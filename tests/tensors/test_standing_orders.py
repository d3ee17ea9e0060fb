"""What C does to have gradients judged, with a driver that only notes down what it is told."""

from __future__ import annotations

import ctypes
import mmap
from array import array
from typing import Any

import pytest
import torch
from torch import Tensor

from nanwatch.tensors import compiled, wait_until_ready
from nanwatch.tensors.cuda_launch import Order
from nanwatch.tensors.rows import PYTHON

HOST, FLOAT32, BFLOAT16 = 1, 0, 2
FUNCTION, STREAM, EVENT, PROGRAMS, THREADS, SHARED = 11, 22, 33, 44, 256, 55
LETTER, LOSS, GIVEN = 1, 4, 6
NUMBER, ADDRESS = ctypes.c_uint, ctypes.c_void_p

pytestmark = pytest.mark.skipif(PYTHON is None, reason="this torch has no table of functions for C")


class Driver:
    """Told to launch, it reads where the kernel's parameters are, as a GPU's would."""

    def __init__(self, refuses: bool = False, capturing: bool = False) -> None:
        self.said: list[Any] = []

        def launch(function: int, *told: Any) -> int:
            *sizes, stream, parameters, extra = told
            places = (ctypes.c_void_p * GIVEN).from_address(parameters)
            given = [ctypes.c_uint64.from_address(place or 0).value for place in places]
            self.said.append(("launch", function, sizes, stream, given, extra))
            return int(refuses)

        def record(event: int, stream: int) -> int:
            self.said.append(("record", event, stream))
            return 0

        def is_capturing(stream: int, status: Any) -> int:
            status[0] = int(capturing)
            return 0

        self.functions = (
            ctypes.CFUNCTYPE(ctypes.c_int, ADDRESS, *[NUMBER] * 7, ADDRESS, ADDRESS, ADDRESS)(launch),
            ctypes.CFUNCTYPE(ctypes.c_int, ADDRESS, ADDRESS)(record),
            ctypes.CFUNCTYPE(ctypes.c_int, ADDRESS, ctypes.POINTER(ctypes.c_int))(is_capturing),
        )


def judged(
    driver: Driver, counts: list[int], tensors: list[Tensor], dtype: int = FLOAT32, aligned: bool = True
) -> tuple[int, list[int]]:
    """What C answers, and what is in the letter then. The last of the tensors is the loss."""
    assert wait_until_ready()
    library = compiled.library()
    assert library is not None
    values = (ctypes.c_uint64 * GIVEN)(*range(GIVEN))
    first = ctypes.addressof(values)
    places = (ctypes.c_void_p * GIVEN)(*range(first, first + 8 * GIVEN, 8))
    functions = [ctypes.cast(function, ctypes.c_void_p) for function in driver.functions]
    sizes, letter = array("q", counts), array("q", [-1] * (2 + len(counts)))
    order = Order(*functions, FUNCTION, STREAM, ctypes.addressof(places), first)
    order.programs, order.threads, order.shared = PROGRAMS, THREADS, SHARED
    order.counts, order.rows = sizes.buffer_info()[0], len(counts)
    order.type, order.loss_type, order.aligned, order.device_type, order.device_id = (
        dtype,
        FLOAT32,
        aligned,
        HOST,
        0,
    )
    objects = array("q", map(id, tensors))
    at = letter.buffer_info()[0]
    answer = library.nanwatch_judge(PYTHON, ctypes.addressof(order), objects.buffer_info()[0], at, EVENT)
    return answer, [at, *letter]


def high(dtype: torch.dtype = torch.float32) -> Tensor:
    """Some ones in memory that lies high, as that of a GPU does; usual tensors may be anywhere."""
    return torch.frombuffer(mmap.mmap(-1, 1 << 12), dtype=dtype).fill_(1)


def gradients() -> list[Tensor]:
    """And a loss."""
    memory = high()
    return [memory[:16].view(4, 4), memory[16:32], memory[32]]


def test_addresses_are_in_the_letter_and_the_kernel_is_told_where_it_is() -> None:
    driver, tensors = Driver(), gradients()
    answer, (at, *letter) = judged(driver, [16, 16], tensors)
    first, second, loss = (t.data_ptr() for t in tensors)
    assert (answer, letter) == (0, [-1, -1, first, second])
    given = list(range(GIVEN))
    given[LETTER], given[LOSS] = at, loss
    sizes = [PROGRAMS, 1, 1, THREADS, 1, 1, SHARED]
    assert driver.said == [("launch", FUNCTION, sizes, STREAM, given, None), ("record", EVENT, STREAM)]


@pytest.mark.parametrize(
    ("counts", "changed"),
    [
        ([16, 15], {}),
        ([16, 16], {0: high(torch.bfloat16)[:16]}),
        ([16, 16], {0: high(torch.int32)[:16]}),
        ([16, 16], {1: high()[:32:2]}),
        ([16, 16], {1: torch.ones(16, device="meta")}),
        ([16, 16], {1: high()[1:17]}),
        ([16, 16], {2: high(torch.float64)[0]}),
        ([16, 16], {2: high()[:2]}),
    ],
)
def test_nothing_is_launched_where_something_is_not_as_it_was(
    counts: list[int], changed: dict[int, Tensor]
) -> None:
    driver = Driver()
    tensors = [changed.get(index, tensor) for index, tensor in enumerate(gradients())]
    try:
        answer, _ = judged(driver, counts, tensors)
    except (BufferError, RuntimeError):  # torch cannot describe a tensor of the meta device
        answer = -1
    assert (answer, driver.said) == (-1, [])


def test_other_types_and_places_if_the_order_has_them() -> None:
    halves = [high(torch.bfloat16)[1:17], gradients()[-1]]
    assert judged(Driver(), [16], halves, BFLOAT16, aligned=False)[0] == 0
    assert judged(Driver(), [16], halves, BFLOAT16, aligned=True)[0] == -1


def test_a_driver_that_refuses_and_a_graph_that_is_captured() -> None:
    refusing, capturing = Driver(refuses=True), Driver(capturing=True)
    assert judged(refusing, [16, 16], gradients())[0] == -1
    assert [kind for kind, *_ in refusing.said] == ["launch"]
    assert judged(capturing, [16, 16], gradients())[0] == -1
    assert capturing.said == []
