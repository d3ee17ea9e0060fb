"""A launcher ends all ranks when one has failed, often while another, whose fault it was, writes its report.
It asks first (SIGTERM) and waits some seconds before it kills: that is time enough to finish the report."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def unhurried() -> Iterator[None]:
    """A SIGTERM that comes meanwhile takes effect afterwards, as it would have."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is None:
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if came:
            os.kill(os.getpid(), signal.SIGTERM)
