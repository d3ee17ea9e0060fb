"""Whether the step can be run again within the memory that there is: as much must be free as the program has
taken, at its peak, beyond what it holds now."""

from __future__ import annotations

from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
MEMINFO = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")


def room_for_a_step() -> bool:
    return all(free >= needed for needed, free in (host(), device()))


def host() -> tuple[int, int]:
    """(bytes needed, bytes free) on the host; nothing is needed where nobody can say."""
    status, info = _fields(STATUS), _fields(MEMINFO)
    if "VmHWM" not in status or "MemAvailable" not in info:
        return 0, 0
    return status["VmHWM"] - status["VmRSS"], min(info["MemAvailable"], _left_in_group())


def device() -> tuple[int, int]:
    """(bytes needed, bytes free) on the current GPU."""
    if not torch.cuda.is_initialized():
        return 0, 0
    used = torch.cuda.memory_allocated()
    free, _ = torch.cuda.mem_get_info()
    return torch.cuda.max_memory_allocated() - used, free + torch.cuda.memory_reserved() - used


def _fields(path: Path) -> dict[str, int]:
    """Lines such as `VmRSS:  1024 kB`, in bytes."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1:] == ["kB"]}


def _left_in_group() -> int:
    """What a container's limit leaves."""
    try:
        limit = int((GROUP / "memory.max").read_text())
        return limit - int((GROUP / "memory.current").read_text())
    except (OSError, ValueError):  # no such limit
        return 2**63
