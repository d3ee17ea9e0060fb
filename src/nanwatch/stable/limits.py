"""What a dtype can hold, and how values are brought to where it can hold them.

Half precision is widened to float32 inside the blocks and given back in the dtype that came in, with autocast
or without. Rows far out of the ordinary are scaled by a power of two, which is exact; the factor of all other
rows is 1, so they keep their bits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def eps_for(dtype: torch.dtype) -> float:
    """An epsilon that does its work in `dtype`: not flushed to zero (1e-8 is 0 in float16), its inverse, root
    and logarithm finite, and too small to change 1 when added to it."""
    limits = torch.finfo(dtype)
    return max(limits.eps**2, limits.tiny)


def exp_limit(dtype: torch.dtype) -> float:
    """The largest number of `dtype` whose exponential is finite in `dtype`."""
    limits = torch.finfo(dtype)
    exact = math.log(limits.max)
    spacing = 2.0 ** math.floor(math.log2(exact)) * limits.eps
    return math.floor(exact / spacing) * spacing


def smallest_positive(dtype: torch.dtype) -> float:
    """The smallest number above 0, a subnormal."""
    limits = torch.finfo(dtype)
    return limits.tiny * limits.eps


def smallest_with_inverse(dtype: torch.dtype) -> float:
    """The smallest number whose inverse is finite."""
    spacing = smallest_positive(dtype)
    return math.ceil(1 / torch.finfo(dtype).max / spacing) * spacing


def largest_below_one(dtype: torch.dtype) -> float:
    return 1 - torch.finfo(dtype).eps / 2


def log_of_zero(dtype: torch.dtype) -> float:
    """What stands for log(0): the logarithm of the smallest number above 0, -103.28 in float32."""
    limits = torch.finfo(dtype)
    return math.log(limits.tiny) + math.log(limits.eps)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def widened(x: Tensor) -> Tensor:
    return x.to(wide_dtype(x.dtype))


def common_dtype(a: Tensor, b: Tensor) -> torch.dtype:
    """torch.result_type of two floating tensors, which torch.compile does not take."""
    if (a.dim() == 0) != (b.dim() == 0):
        return a.dtype if a.dim() else b.dtype
    return torch.promote_types(a.dtype, b.dtype)


def bounded_to(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in `dtype`; a number that only x's wider dtype can hold becomes the largest of `dtype`, with
    gradient 0. NaN and Inf stay what they are."""
    if x.dtype == dtype:
        return x
    limits = torch.finfo(dtype)
    return torch.where(x.abs() == math.inf, x, x.clamp(limits.min, limits.max)).to(dtype)


def largest_of(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The largest magnitude of each row, in one pass and outside the graph; NaN where the row holds one."""
    largest: Tensor = torch.linalg.vector_norm(x.detach(), math.inf, dims, keepdim=True)
    return largest


def scale_of(largest: Tensor, lift: bool = True) -> Tensor:
    """The power of two to divide a row by so that its sum of squares fits, from the row's largest magnitude.

    1 for ordinary rows, for rows that hold NaN or Inf, and, unless `lift`, for rows of small values.
    """
    limits = torch.finfo(largest.dtype)
    far = 2.0 ** (400 if largest.dtype == torch.float64 else 40)
    size = torch.exp2(torch.floor(torch.log2(largest.clamp(limits.tiny, limits.max))))
    scale = size / size.clamp(1 / far if lift else limits.tiny, far)
    return scale.masked_fill(~(largest < math.inf), 1.0)
