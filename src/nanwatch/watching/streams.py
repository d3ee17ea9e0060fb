"""Which CUDA stream the program is working on."""

from __future__ import annotations

import torch


def on_side_stream() -> bool:
    """Whether what is launched now goes to another stream than the usual one."""
    if not torch.cuda.is_initialized():
        return False
    return bool(torch._C._cuda_getCurrentRawStream(torch.cuda.current_device()))
