"""A pool of threads for the experts, and the buffers in which they stack their inputs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from settings import Settings


class Workers:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool = ThreadPoolExecutor(settings.workers, thread_name_prefix="expert-worker")
        self._shared: dict[str, torch.Tensor] = {}
        self._own = threading.local()

    def scratch(self, experts: int, tokens: int) -> torch.Tensor:
        """A buffer (experts, tokens, hidden) for the worker that asks; kept from call to call."""
        held = self._own.__dict__ if self._settings.own_scratch else self._shared
        if "buffer" not in held or held["buffer"].shape[1] < tokens:
            held["buffer"] = torch.zeros(self._settings.experts_per_task, tokens, self._settings.hidden)
        return held["buffer"][:experts, :tokens]

    def run(self, work: Callable[[Any], torch.Tensor], groups: list[Any]) -> Iterator[torch.Tensor]:
        """The results in the order of the groups, as soon as each is there."""
        return self._pool.map(work, groups)

    def close(self) -> None:
        self._pool.shutdown()
