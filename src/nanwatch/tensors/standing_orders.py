"""A GPU is asked for its verdict on the same gradients in every step: from the second time on in one call of
C, which finds them, writes where they are into a letter, and launches the kernel.

All that is looked up, compared and built in Python for it takes a host several times as long.
"""

from __future__ import annotations

import ctypes
from array import array
from typing import Any

import torch
from torch import Tensor

from nanwatch.signals import let_through
from nanwatch.tensors.cuda_launch import Order
from nanwatch.tensors.rows import PLAIN_TYPES, PYTHON, Places

ON_CUDA = 2
"""DLPack's number of this kind of device."""
MOST_ORDERS = 8

_current_device, _current_stream = (
    getattr(torch._C, name, lambda *_: None) for name in ("_cuda_getDevice", "_cuda_getCurrentRawStream")
)


class StandingOrder:
    """To have gradients like these judged on one stream of a GPU, and the verdict put into `kept`."""

    def __init__(
        self, order: Order, places: Places, loss_type: int, mail: Any, kept: Tensor, read: Any
    ) -> None:
        """`mail` gives the letters, `read` is what else the kernel reads."""
        self.size, self.kept = len(places.counts), kept
        self._held = order, places.counts, read
        self._mail, self._gpu, self._stream = mail, kept.get_device(), order.stream or 0
        order.counts, order.rows = places.counts.buffer_info()[0], self.size
        order.type, order.loss_type, order.aligned = places.type, loss_type, places.aligned
        order.device_type, order.device_id = ON_CUDA, self._gpu
        self._place = ctypes.addressof(order)

    def serves(self, size: int, kept: Tensor) -> bool:
        """Launches go to the current device, and to the stream that the program works on."""
        if self.size != size or self.kept is not kept or _current_device() != self._gpu:
            return False
        return bool(_current_stream(self._gpu) == self._stream)

    def give(self, library: Any, objects: array[int]) -> Any:
        """The answer that will come, or None if something is not as it was."""
        letter = self._mail.next()
        first = objects.buffer_info()[0]
        refused = library.nanwatch_judge(PYTHON, self._place, first, letter.at, letter.event)
        return None if refused else letter.answer


_orders: list[StandingOrder] = []
"""The last one first."""


def keep(order: StandingOrder) -> None:
    _orders.insert(0, order)
    del _orders[MOST_ORDERS:]


def answer_for(library: Any, gradients: list[Tensor], loss: Tensor, kept: Tensor) -> Any:
    """The answer to a standing order for these, or None where there is none."""
    fitting = [order for order in _orders if order.serves(len(gradients), kept)]
    if not fitting or not PYTHON or type(loss) not in PLAIN_TYPES:
        return None
    if not PLAIN_TYPES.issuperset(map(type, gradients)):
        return None
    objects = array("q", map(id, gradients))
    objects.append(id(loss))
    try:
        return next(filter(None, (order.give(library, objects) for order in fitting)), None)
    except Exception as error:  # one that torch cannot describe
        let_through(error)
        return None
