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
        self._arrived = torch.cuda.Event() if self._on_cuda else None

    def send_to_host(self, hidden: torch.Tensor) -> None:
        """Starts the copy of (tokens, hidden) into the staging buffer."""
        if len(hidden) > len(self._staging):
            self._staging = torch.zeros(hidden.shape, pin_memory=self._on_cuda)
        self._staging[: len(hidden)].copy_(hidden, non_blocking=True)
        if self._arrived is not None:
            self._arrived.record()

    def rows(self, token_ids: torch.Tensor) -> torch.Tensor:
        """The hidden states of these tokens, on the host."""
        if self._arrived is not None and self._settings.wait_for_copies:
            self._arrived.synchronize()
        time.sleep(self._settings.link_delay * len(token_ids))
        return self._staging.index_select(0, token_ids)

    def to_device(self, values: torch.Tensor) -> torch.Tensor:
        """What an expert made, on its way back."""
        if self._on_cuda:
            values = values.pin_memory()
        return values.to(self._device, dtype=self._settings.transfer_dtype, non_blocking=True)
