"""The way between device and host: with CUDA pinned memory and copies that do not wait, else plain copies."""

from __future__ import annotations

import time

import torch
from settings import Settings


class Link:
    """Hidden states of all tokens go to the host once per layer; rows are taken from there."""

    def __init__(self, settings: Settings, device: str) -> None:
        self._settings = settings
        self._device = device
        self._on_cuda = device.startswith("cuda")
        self._staging = torch.zeros(0)
        if self._on_cuda:
            self._copies = torch.cuda.Stream()
            self._arrived = torch.cuda.Event()
            self._cache = torch.zeros(settings.cache_values, device=device)
            self._cache_on_host = torch.zeros(settings.cache_values, pin_memory=True)

    def send_to_host(self, hidden: torch.Tensor) -> None:
        """Starts the copy of (tokens, hidden) into the staging buffer."""
        if len(hidden) > len(self._staging):
            self._staging = torch.zeros(hidden.shape, pin_memory=self._on_cuda)
        if not self._on_cuda:
            self._staging[: len(hidden)].copy_(hidden)
            return
        self._copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._copies):
            self._cache_on_host.copy_(self._cache, non_blocking=True)
            self._staging[: len(hidden)].copy_(hidden, non_blocking=True)
            hidden.record_stream(self._copies)
            self._arrived.record()

    def rows(self, token_ids: torch.Tensor) -> torch.Tensor:
        """The hidden states of these tokens, on the host."""
        if self._on_cuda and self._settings.wait_for_copies:
            self._arrived.synchronize()
        time.sleep(self._settings.link_delay * len(token_ids))
        return self._staging.index_select(0, token_ids)

    def to_device(self, values: torch.Tensor) -> torch.Tensor:
        """What an expert made, on its way back."""
        if self._on_cuda:
            values = values.pin_memory()
        return values.to(self._device, dtype=self._settings.transfer_dtype, non_blocking=True)
