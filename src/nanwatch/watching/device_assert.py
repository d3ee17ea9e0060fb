"""An assert of a kernel on a GPU: from then on every call there fails with it, whoever makes it."""

from __future__ import annotations


def is_device_assert(error: BaseException) -> bool:
    return "device-side assert" in str(error)
