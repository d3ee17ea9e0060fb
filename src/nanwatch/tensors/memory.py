"""From any tensor to the plain memory that holds its values. Call inside `plain_dispatch`.

A tensor may be a wrapper, a list of rows, a compressed matrix or a view that repeats one value a billion
times. `parts_of` finds the strided tensors below it, `without_repeats` drops what a stride of 0 repeats, and
`real_pieces` gives contiguous floating-point memory, copied piece by piece where it has to be copied at all.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = frozenset(
    kind
    for name in ("int16", "int32", "int64", "uint16", "uint32", "uint64")
    if isinstance(kind := getattr(torch, name, None), torch.dtype)
)
BYTES = frozenset(
    kind
    for name in (
        "bool",
        "uint8",
        "int8",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    )
    if isinstance(kind := getattr(torch, name, None), torch.dtype)
)
COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
LARGEST_DOUBLE = torch.finfo(torch.float64).max


def parts_of(t: Tensor) -> list[Tensor] | None:
    """The strided tensors that hold the values of t; None when it has no values to look at."""
    if getattr(t, "fake_device", None) is not None or t.is_meta:
        return None
    if torch._C._functorch.is_functorch_wrapped_tensor(t):
        return parts_of(torch._C._functorch.get_unwrapped(t))
    if torch._is_functional_tensor(t):
        torch._functionalize_sync(t)
        return parts_of(torch._from_functional_tensor(t))
    if t._is_zerotensor():
        return [torch.zeros((), dtype=t.dtype, device=t.device).expand(t.shape)]
    if t.is_nested:
        return _together(_rows(t))
    if (inner := _inner_tensors(t)) is not None:
        return _together(inner)
    return _together([_stored(t)])


def without_repeats(t: Tensor) -> tuple[Tensor, int]:
    """t with every expanded dimension cut to one, and how often each value that is left occurred."""
    copies = 1
    for dim, (size, stride) in enumerate(zip(t.shape, t.stride(), strict=True)):
        if stride == 0 and size > 1:
            t = t.narrow(dim, 0, 1)
            copies *= size
    return t, copies


def flat_memory(t: Tensor) -> Tensor | None:
    """t as one row in the order of memory, when its values fill a stretch of memory without gaps."""
    if t.is_neg() or t.is_conj():
        return None
    if not t.is_contiguous():
        expected = 1
        for stride, size in sorted(zip(t.stride(), t.shape, strict=True)):
            if size != 1 and stride != expected:
                return None
            expected *= size
    return t.as_strided((t.numel(),), (1,))


def pieces(t: Tensor, limit: int) -> Iterator[Tensor]:
    """t cut into views of at most `limit` values."""
    if t.numel() <= limit:
        yield t
        return
    dim = next(d for d, size in enumerate(t.shape) if size > 1)
    rows = max(1, limit * t.shape[dim] // t.numel())
    for piece in torch.split(t, rows, dim):
        yield from pieces(piece, limit)


def real_pieces(t: Tensor, limit: int) -> Iterator[Tensor]:
    """The values of a strided tensor as contiguous rows of a dtype in FLOATS; none if they have no order."""
    if t.dtype in FLOATS:
        flat = flat_memory(t)
        if flat is not None:
            yield flat
        else:
            yield from (piece.resolve_neg().contiguous().view(-1) for piece in pieces(t, limit))
    elif t.is_complex():
        yield from (_absolute(piece).view(-1) for piece in pieces(t, limit))
    elif t.dtype in INTEGERS:
        yield from (_contiguous_as(piece, torch.float64) for piece in pieces(t, limit))
    elif t.dtype in BYTES:
        yield from (_contiguous_as(piece, torch.float32) for piece in pieces(t, limit))


def _contiguous_as(piece: Tensor, dtype: torch.dtype) -> Tensor:
    return piece.to(dtype, memory_format=torch.contiguous_format).view(-1)


def _together(tensors: list[Tensor]) -> list[Tensor] | None:
    found: list[Tensor] = []
    for t in tensors:
        below = [t] if _is_plain_memory(t) else parts_of(t)
        if below is None:
            return None
        found += below
    return found


def _is_plain_memory(t: Tensor) -> bool:
    if type(t) is not Tensor or t.layout is not torch.strided or t.is_nested or t.is_quantized or t.is_meta:
        return False
    if t.numel() and not _has_memory(t):
        raise ValueError("the memory of this tensor was freed, or it is a wrapper that never had any")
    return True


def _has_memory(t: Tensor) -> bool:
    """A wrapper subclass tells of as many bytes as it stands for, and has none of them: a kernel that reads
    there ends the process. Its storage, asked where it lies, says nothing or raises. (Of a tensor, torch
    tells the offset as the address.)"""
    storage = t.untyped_storage()
    return bool(storage.nbytes()) and (not (t.is_cpu or t.is_cuda) or bool(storage.data_ptr()))


def _rows(t: Tensor) -> list[Tensor]:
    if t.layout is not torch.jagged:
        return list(t.unbind())
    values, offsets, lengths = (getattr(t, name) for name in ("_values", "_offsets", "_lengths"))
    if lengths is None:
        return [values]
    ragged = getattr(t, "_ragged_idx", 1) - 1
    places = zip(offsets.tolist(), lengths.tolist(), strict=False)
    return [values.narrow(ragged, start, length) for start, length in places]


def _inner_tensors(t: Tensor) -> list[Tensor] | None:
    """What a wrapper subclass wraps, by torch's protocol or by the usual name."""
    if hasattr(t, "trigger_wait"):
        return [t.trigger_wait()]
    if hasattr(t, "__tensor_flatten__"):
        names, _ = t.__tensor_flatten__()
        inner = [getattr(t, name) for name in names]
        return [part for part in inner if isinstance(part, Tensor)]  # a DTensor names its mesh, too
    if _dispatches_in_python(t) and isinstance(elem := getattr(t, "elem", None), Tensor):
        return [elem]
    return None


def _dispatches_in_python(t: Tensor) -> bool:
    return torch._C._dispatch_keys(t).has(torch._C.DispatchKey.Python)


def _stored(t: Tensor) -> Tensor:
    """Below the dispatch of a subclass only strided memory is safe to touch: a wrapper may say it is sparse
    and hold nothing."""
    if t.layout is not torch.strided and _dispatches_in_python(t):
        raise ValueError("this tensor is a wrapper that does not say what it wraps")
    if t.layout is torch.sparse_coo:
        return t._values()
    if t.layout in COMPRESSED:
        return t.values()
    if t.is_mkldnn:
        return t.to_dense()
    if t.is_quantized:
        return t.dequantize()
    return t.detach().as_subclass(Tensor)


def _absolute(z: Tensor) -> Tensor:
    """Absolute values in float64: NaN when either part is NaN, Inf only when a part is."""
    parts = torch.view_as_real(z.resolve_conj().resolve_neg()).to(torch.float64)
    real, imaginary = parts.unbind(-1)
    size = torch.hypot(real, imaginary)
    size = torch.where(parts.isfinite().all(-1), size.clamp(max=LARGEST_DOUBLE), size)
    return torch.where(parts.isnan().any(-1), torch.nan, size).contiguous()
