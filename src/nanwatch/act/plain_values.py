"""What a state dict may hold, taken apart and put together again: tensors, numbers, text, lists and dicts.

A value becomes an outline, which JSON can hold, and host copies of the tensors in it. Nothing of it can run
code when it is read. What is of another kind is left out, and its key is noted.
"""

from __future__ import annotations

import base64
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch import Tensor

from nanwatch.tensors.plain_dispatch import plain_dispatch

MAPPINGS: dict[str, Any] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "Size": torch.Size}
NUMERIC = "biufc"
"""The kinds of NumPy values that are plain memory."""


class Taken:
    """The tensors of a state, copied to the host, by name; and the keys of what could not be taken. The
    copies are made all at once, in the end."""

    def __init__(self, spare: dict[str, Tensor] | None = None) -> None:
        self._spare = spare or {}
        """Copies of an earlier state that nobody needs: new memory costs more than the copying."""
        self.tensors: dict[str, Tensor] = {}
        self.left_out: list[str] = []
        self._sources: list[Tensor] = []

    def outline(self, value: Any, name: str) -> Any:
        """The outline of a value; its tensors are noted on the way."""
        if value is None or type(value) in (bool, int, float, str):
            return value
        kind = type(value).__name__
        if type(value) is MAPPINGS.get(kind):
            return {
                kind: [
                    [self.outline(k, f"{name}.key"), self.outline(v, f"{name}.{k}")] for k, v in value.items()
                ]
            }
        if type(value) is SEQUENCES.get(kind):
            return {kind: [self.outline(v, f"{name}.{i}") for i, v in enumerate(value)]}
        if isinstance(value, Tensor) and (inner := plain_tensors(value)) is not None:
            return self._tensor(value, inner, name)
        return self._small(value, name)

    def copy(self) -> None:
        """Of all tensors noted: afterwards the program may change them."""
        sources, self._sources = self._sources, []
        if sources:
            with plain_dispatch():  # a mode of the program, or our own tracer, must not see it
                torch._foreach_copy_(list(self.tensors.values()), sources, non_blocking=True)
        for device in {t.device for t in sources if t.is_cuda}:
            torch.cuda.current_stream(device).synchronize()

    def _tensor(self, value: Tensor, inner: list[Tensor], name: str) -> Any:
        names = []
        for tensor in inner:
            while name in self.tensors:  # a wrapper has several; keys may differ and look the same
                name += "'"
            self.tensors[name] = _host_memory(tensor, self._spare.get(name))
            self._sources.append(tensor)
            names.append(name)
        return {"tensor": names, "wrapped": inner[0] is not value, "device": str(inner[0].device)}

    def _small(self, value: Any, name: str) -> Any:
        if isinstance(value, bytes):
            return {"bytes": base64.b64encode(value).decode()}
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        if isinstance(value, numpy.ndarray | numpy.generic) and value.dtype.kind in NUMERIC:
            memory = base64.b64encode(numpy.asarray(value).tobytes()).decode()
            scalar = isinstance(value, numpy.generic)
            return {"numpy": [value.dtype.str, list(value.shape), memory], "scalar": scalar}
        if isinstance(value, torch.dtype | torch.device):
            return {type(value).__name__: str(value).removeprefix("torch.")}
        self.left_out.append(f"{name} ({type(value).__name__})")
        return {"left out": name}


def _host_memory(tensor: Tensor, spare: Tensor | None) -> Tensor:
    """For a copy of the tensor."""
    if spare is not None and spare.shape == tensor.shape and spare.dtype is tensor.dtype:
        return spare
    with plain_dispatch():
        return torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda, requires_grad=False)


class Putter:
    """Makes values of outlines again, into the memory of what is there now where that is possible."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._tensors = tensors
        self._written: dict[Any, Tensor] = {}

    def value(
        self, outline: Any, current: Any = None, like: Tensor | None = None, in_place: bool = True
    ) -> Any:
        """The value. `current` is what stands in its place now; `like`: the parameter it belongs to."""
        if not isinstance(outline, dict):
            return outline
        kind, content = next(iter(outline.items()))
        if kind == "tensor":
            return self._tensor(outline, current, like, in_place)
        if kind in MAPPINGS:
            now = current if isinstance(current, dict) else {}
            pairs = [(self.value(key), item) for key, item in content]
            return MAPPINGS[kind]({k: self.value(v, now.get(k), like, in_place) for k, v in pairs})
        if kind in SEQUENCES:
            there = list(current) if type(current) in (list, tuple) else []
            there += [None] * (len(content) - len(there))
            values = (self.value(v, now, like, in_place) for v, now in zip(content, there, strict=False))
            return SEQUENCES[kind](values)
        return current if kind == "left out" else _small_value(kind, outline)

    def into(self, outline: Any, target: Tensor) -> bool:
        """Writes a tensor into the memory of another; False where it does not fit or cannot be written."""
        saved = [self._tensors[name] for name in outline["tensor"]]
        inner = plain_tensors(target)
        if inner is None or not fits(saved, inner):
            return False
        try:
            for source, place in zip(saved, inner, strict=True):
                place.copy_(source)
        except RuntimeError:  # memory that stands for several values, or that only inference may write
            return False
        return True

    def fresh(self, outline: Any, like: Tensor | None = None) -> Tensor:
        """The tensor in memory of its own, wrapped as `like` is if it was wrapped."""
        device = torch.device(outline["device"])
        if device.type != "cpu" and like is not None:
            device = like.device
        saved = [self._tensors[name] for name in outline["tensor"]]
        made = [torch.empty_like(t, device=device).copy_(t) for t in saved]
        if not outline["wrapped"]:
            return made[0]
        whole: Tensor = _wrapped_as(like, iter(made)).detach()
        return whole

    def _tensor(self, outline: Any, current: Any, like: Tensor | None, in_place: bool) -> Tensor:
        if isinstance(current, Tensor):
            if in_place and self._may_write(current, outline) and self.into(outline, current):
                return current
            like = current if outline["wrapped"] and like is None else like
        return self.fresh(outline, like)

    def _may_write(self, target: Tensor, outline: Any) -> bool:
        """Not where another value was written already: two names may have come to share memory."""
        source = self._tensors[outline["tensor"][0]]
        inner = plain_tensors(target)
        if not inner or str(inner[0].device) != outline["device"]:
            return False
        before = self._written.setdefault((inner[0].device, inner[0].data_ptr()), source)
        return same_bits(before, source)


def plain_tensors(tensor: Tensor) -> list[Tensor] | None:
    """The plain tensors that hold its values: itself, or the parts of a wrapper (a DTensor's local shard).
    None where the values lie in no ordinary memory."""
    if hasattr(tensor, "__tensor_flatten__"):
        attributes, _ = tensor.__tensor_flatten__()
        inner = [getattr(tensor, name) for name in attributes]
        parts = [plain_tensors(part) for part in inner if isinstance(part, Tensor)]
        return None if None in parts else [t for part in parts if part is not None for t in part]
    ordinary = tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_meta
    return [tensor] if ordinary and not torch.nn.parameter.is_lazy(tensor) else None


def _wrapped_as(like: Any, parts: Iterator[Tensor]) -> Any:
    """A tensor wrapped as another is; what is no tensor in the wrapper (the mesh of a DTensor) is shared."""
    if not isinstance(like, Tensor):
        return like
    if not hasattr(like, "__tensor_flatten__"):
        part = next(parts)
        if part.shape != like.shape:
            raise ValueError(f"{tuple(part.shape)} in the place of {tuple(like.shape)}")
        return part
    attributes, context = like.__tensor_flatten__()
    inner = {name: _wrapped_as(getattr(like, name), parts) for name in attributes}
    kind: Any = type(like)
    return kind.__tensor_unflatten__(inner, context, like.shape, like.stride())


def fits(saved: list[Tensor], now: list[Tensor]) -> bool:
    return [(t.shape, t.dtype) for t in saved] == [(t.shape, t.dtype) for t in now]


def same_bits(one: Tensor, other: Tensor) -> bool:
    if one is other:
        return True
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (one, other)))


def _small_value(kind: str, outline: Any) -> Any:
    content = outline[kind]
    if kind == "bytes":
        return base64.b64decode(content)
    if kind == "complex":
        return complex(*content)
    if kind == "numpy":
        dtype, shape, memory = content
        array = numpy.frombuffer(base64.b64decode(memory), numpy.dtype(dtype)).reshape(shape).copy()
        return array[()] if outline["scalar"] else array
    if kind == "device":
        return torch.device(content)
    if kind == "dtype" and isinstance(getattr(torch, content, None), torch.dtype):
        return getattr(torch, content)
    raise ValueError(kind)
