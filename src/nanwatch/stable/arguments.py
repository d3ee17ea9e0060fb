"""Arguments are refused at the door, with a ValueError that says what to write instead."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nanwatch.messages import say


def require_floating(where: str, **tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            found = f"a {type(tensor).__name__}"
        elif not tensor.dtype.is_floating_point:
            found = str(tensor.dtype)
        else:
            continue
        raise ValueError(say("stable.not_floating", where=where, name=name, found=found))


def require_mask(where: str, mask: Tensor, shape: Sequence[int]) -> None:
    """A bool tensor that broadcasts to `shape`."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        found = str(mask.dtype) if isinstance(mask, Tensor) else f"a {type(mask).__name__}"
        raise ValueError(say("stable.mask_dtype", where=where, found=found))
    require_shape(where, "mask", mask.shape, shape)


def require_shape(where: str, name: str, found: Sequence[int], shape: Sequence[int]) -> None:
    """Something of shape `found` must broadcast to exactly `shape`."""
    if not broadcasts(found, shape):
        raise ValueError(
            say("stable.shape", where=where, name=name, found=tuple(found), expected=tuple(shape))
        )


def broadcasts(found: Sequence[int], shape: Sequence[int]) -> bool:
    pairs = zip(reversed(found), reversed(shape), strict=False)
    return len(found) <= len(shape) and all(have in (1, want) for have, want in pairs)


def require_number(
    where: str,
    name: str,
    value: float,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
    example: float = 1.0,
) -> None:
    """above < value, least <= value <= most; NaN and Inf are refused."""
    if math.isfinite(value) and value > above and least <= value <= most:
        return
    lower = f"{above:g} < " if above > -math.inf else f"{least:g} <= " if least > -math.inf else ""
    upper = f" <= {most:g}" if most < math.inf else " < inf"
    expected = f"{lower}{name}{upper}"
    raise ValueError(
        say("stable.number", where=where, name=name, found=value, expected=expected, example=example)
    )


def require_choice(where: str, name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(
            say("stable.choice", where=where, name=name, found=value, choices=", ".join(choices))
        )
