"""Everything that can be set: the sizes of the model, and how its experts are run."""

from dataclasses import dataclass, field
from pathlib import Path

import torch


@dataclass(frozen=True)
class Settings:
    hidden: int = 32
    intermediate: int = 48
    heads: int = 4
    layers: int = 2
    experts: int = 24
    experts_per_token: int = 2
    longest: int = 64
    """Tokens of a prompt and its continuation."""

    workers: int = 2
    experts_per_task: int = 6
    """How many experts a worker computes at once, grouped in one einsum."""
    own_scratch: bool = True
    """Each worker stacks its inputs in a buffer of its own."""
    fixed_groups: bool = False
    """Experts without a token are computed, too: the shapes do not change from token to token."""
    padding_id: int = 0
    """The token that the empty places of a group are given, at weight 0."""
    activation: str = "silu"
    compute_dtype: torch.dtype = torch.float32
    transfer_dtype: torch.dtype = torch.float32
    """In which the experts' outputs travel to the device and are added up there."""
    routed_scale: float = 1.0
    """What the experts' outputs are multiplied with after routing."""

    header: int = 256
    """Bytes in front of the weights in the shared segment."""
    attached_header: int = 256
    attached_dtype: torch.dtype = torch.float32
    wait_for_loader: bool = True
    wait_for_copies: bool = True
    cache_values: int = 1 << 26
    """Of the attention's cache, which a layer moves to the host over the same link (with CUDA only)."""
    link_delay: float = 0.0
    """Seconds that a row takes from the device to the host."""
    disk_delay: float = 0.0
    """Seconds that an expert takes from the disk to the shared segment."""


@dataclass(frozen=True)
class Job:
    """What one run of the program is asked to do."""

    settings: Settings = field(default_factory=Settings)
    gains: tuple[tuple[str, float], ...] = ()
    """(w1, w2 or w3; the gain that was folded into it when the checkpoint was made)."""
    checkpoint: Path = Path()
    device: str = "cpu"
    tokens: int = 12
