"""Lengths, unit vectors, cosines and standard deviations: right at zero, and far from one.

Where the squares would leave the dtype (1e20 squared is inf in float32, 1e-25 squared is 0) they are taken
after a scaling by a power of two, so value and gradient are right there too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nanwatch.stable.arguments import require_floating
from nanwatch.stable.limits import common_dtype, largest_of, scale_of, widened

Dims = int | tuple[int, ...] | None


def norm(x: Tensor, dim: Dims = -1, keepdim: bool = False) -> Tensor:
    """The Euclidean length along `dim` (None: of everything); gradient 0, to every order, at zero."""
    require_floating("norm", x=x)
    dims = _dims(x, dim)
    if _size(x, dims) == 0:
        return _plain_length(x, dims, keepdim)
    return _dropped(_length(widened(x), dims), dims, keepdim).to(x.dtype)


def normalize(x: Tensor, dim: Dims = -1) -> Tensor:
    """x / norm(x); the zero vector stays zero, with gradient 0."""
    require_floating("normalize", x=x)
    return _unit(widened(x), _dims(x, dim)).to(x.dtype)


def cosine_similarity(a: Tensor, b: Tensor, dim: int = -1) -> Tensor:
    """The cosine between a and b, never beyond [-1, 1]; 0, with gradient 0, where one of them is zero."""
    require_floating("cosine_similarity", a=a, b=b)
    dtype = common_dtype(a, b)
    a, b = widened(a.to(dtype)), widened(b.to(dtype))
    product = _unit(a, _dims(a, dim)) * _unit(b, _dims(b, dim))
    return product.sum(dim).clamp(-1.0, 1.0).to(dtype)


def std(x: Tensor, dim: Dims = None, correction: int = 1, keepdim: bool = False) -> Tensor:
    """torch.std; gradient 0 where all values are equal, and 0 where there are too few values to have one."""
    require_floating("std", x=x)
    dims = _dims(x, dim)
    wide = widened(x)
    if _size(x, dims) <= correction:
        few = wide.sum(dims, keepdim=True)
        result = few.masked_fill(torch.ones_like(few, dtype=torch.bool), 0.0)
    else:
        scale = scale_of(largest_of(wide, dims))
        result = torch.std(wide / scale, dims, correction=correction, keepdim=True) * scale
    return _dropped(result, dims, keepdim).to(x.dtype)


def _length(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    largest = largest_of(x, dims)
    zero = largest == 0
    scale = scale_of(largest)
    length = _plain_length((x / scale).masked_fill(zero, 1.0), dims)
    return (length * scale).masked_fill(zero, 0.0)


def _plain_length(x: Tensor, dims: tuple[int, ...], keepdim: bool = True) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x, dim=dims, keepdim=keepdim)
    return length


def _unit(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    if _size(x, dims) == 0:
        return x
    largest = largest_of(x, dims)
    zero = largest == 0
    inner = (x / scale_of(largest)).masked_fill(zero, 1.0)
    return (inner / _plain_length(inner, dims)).masked_fill(zero, 0.0)


def _dims(x: Tensor, dim: Dims) -> tuple[int, ...]:
    if dim is None:
        return tuple(range(x.dim()))
    return (dim,) if isinstance(dim, int) else tuple(dim)


def _size(x: Tensor, dims: tuple[int, ...]) -> int:
    size = 1
    for dim in dims if x.dim() else ():
        size *= x.shape[dim]
    return size


def _dropped(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    return x if keepdim or not dims else x.squeeze(dims)
