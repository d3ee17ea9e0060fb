"""One call of an op as data: a JSON-able spec, and the tensors it names.

    spec, tensors = encode_call(args, kwargs, is_tensor=lambda v: isinstance(v, torch.Tensor),
                                names=[a.name for a in func._schema.arguments])

Made to be called from `__torch_dispatch__`. It copies the operands at once, so for an op that writes to
its arguments call it before the op runs. torch is never imported here: tensors are known by
`is_tensor` and handled through their own methods.

An argument in the spec is one of
    null, true, 3, 0.5, "text"         itself
    [ … ]                              a list or tuple
    {"float": "inf"}                   a float that JSON lacks: inf, -inf, nan
    {"complex": ["1.0", "-inf"]}       a complex number
    {"tensor": "self"}                 an operand, described under "tensors"
    {"torch": "float32"}               torch.float32, torch.strided, torch.channels_last, …
    {"device": "cuda:0"}               a device; the CPU where it does not exist
    {"dict": [["key", …], …]}          a dictionary
    {"opaque": "ProcessGroup"}         what cannot be written down; None in the repro
A generator becomes null; the state it drew from can be given as `rng`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

PLAIN_DTYPES = frozenset(
    ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
)
"""What every safetensors can store; complex is stored as its real view, the rest as bytes."""
_LAYOUTS = frozenset(("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"))
_TORCH_CONSTANTS = ("dtype", "layout", "memory_format")


class TensorSpec(TypedDict, total=False):
    """One operand: what the stored bytes mean. `stored` is "plain", "real" (complex as pairs of reals),
    "bytes" or "sparse" (`parts` are the names of its indices and values)."""

    dtype: str
    shape: list[int]
    stride: list[int]
    device: str
    stored: str
    layout: str
    parts: list[str]


class CallSpec(TypedDict):
    args: list[Any]
    kwargs: dict[str, Any]
    tensors: dict[str, TensorSpec]
    rng: dict[str, str]


def encode_call(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    is_tensor: Callable[[Any], bool],
    names: Sequence[str] = (),
    rng: Mapping[str, Any] | None = None,
) -> tuple[CallSpec, dict[str, Any]]:
    """The spec of a call, and contiguous CPU copies of its tensors, ready for `save_file`.

    `names` are the op's parameter names, in order. `rng` maps a device ("cpu", "cuda:0") to the state
    of its default generator before the op: a uint8 tensor, as `torch.get_rng_state()` gives it.
    """
    encoder = _Encoder(is_tensor)
    spec: CallSpec = {"args": [], "kwargs": {}, "tensors": encoder.specs, "rng": {}}
    for position, value in enumerate(args):
        name = names[position] if position < len(names) else f"arg{position}"
        spec["args"].append(encoder.encode(value, name))
    for key, value in kwargs.items():
        spec["kwargs"][key] = encoder.encode(value, key)
    for device, state in (rng or {}).items():
        name = spec["rng"][device] = encoder.free_name(f"rng.{device}")
        encoder.tensors[name] = _own_copy(state)
    return spec, encoder.tensors


def operand_bytes(args: Sequence[Any], kwargs: Mapping[str, Any], is_tensor: Callable[[Any], bool]) -> int:
    """An upper bound of what `encode_call` would copy, to ask before copying."""
    found = {id(t): t for t in _walk([*args, *kwargs.values()], is_tensor)}
    return sum(int(t.numel()) * int(t.element_size()) for t in found.values())


def _walk(value: Any, is_tensor: Callable[[Any], bool]) -> Iterator[Any]:
    if is_tensor(value):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _walk(item, is_tensor)
    elif isinstance(value, dict):
        yield from _walk(list(value.values()), is_tensor)


class _Encoder:
    def __init__(self, is_tensor: Callable[[Any], bool]) -> None:
        self.is_tensor = is_tensor
        self.specs: dict[str, TensorSpec] = {}
        self.tensors: dict[str, Any] = {}
        self._name_of: dict[int, str] = {}

    def encode(self, value: Any, name: str) -> Any:
        if self.is_tensor(value):
            return (
                {"tensor": self._keep(value, name)} if _is_storable(value) else {"opaque": _describe(value)}
            )
        if isinstance(value, (list, tuple)):
            return [self.encode(item, f"{name}.{i}") for i, item in enumerate(value)]
        if isinstance(value, dict):
            return {"dict": [[str(k), self.encode(v, f"{name}.{k}")] for k, v in value.items()]}
        return encode_scalar(value)

    def free_name(self, name: str) -> str:
        candidate, number = name, 2
        while candidate in self.specs or candidate in self.tensors:
            candidate, number = f"{name}-{number}", number + 1
        return candidate

    def _keep(self, tensor: Any, name: str) -> str:
        """The name under which `tensor` is stored; the same tensor twice (mul(x, x)) is stored once."""
        known = self._name_of.get(id(tensor))
        if known is not None:
            return known
        name = self.free_name(name)
        self._name_of[id(tensor)] = name
        shape = [int(n) for n in tensor.shape]
        spec: TensorSpec = {"dtype": _bare(tensor.dtype), "shape": shape, "device": str(tensor.device)}
        self.specs[name] = spec
        if _bare(tensor.layout) == "strided":
            self._keep_strided(tensor.detach(), name, spec)
        else:
            self._keep_sparse(tensor.detach(), name, spec)
        return name

    def _keep_strided(self, tensor: Any, name: str, spec: TensorSpec) -> None:
        strides = [int(s) for s in tensor.stride()]
        if not tensor.is_contiguous():
            spec["stride"] = strides
        for dim, stride in enumerate(strides):
            if stride == 0 and tensor.shape[dim] > 1:
                tensor = tensor.narrow(dim, 0, 1)  # expanded: one copy is enough
        tensor = _own_copy(tensor.resolve_conj().resolve_neg())
        if tensor.is_complex():
            spec["stored"] = "real"
            tensor = tensor.reshape(-1).view(tensor.new_empty(0).real.dtype)
        elif spec["dtype"] in PLAIN_DTYPES:
            spec["stored"] = "plain"
        else:
            spec["stored"] = "bytes"
            tensor = tensor.reshape(-1).view(tensor.new_empty(0).byte().dtype)
        self.tensors[name] = tensor

    def _keep_sparse(self, tensor: Any, name: str, spec: TensorSpec) -> None:
        layout = _bare(tensor.layout)
        if layout == "sparse_coo":
            parts = {"indices": tensor._indices(), "values": tensor._values()}
        elif layout in ("sparse_csr", "sparse_bsr"):
            parts = {"crow": tensor.crow_indices(), "col": tensor.col_indices(), "values": tensor.values()}
        else:
            parts = {"ccol": tensor.ccol_indices(), "row": tensor.row_indices(), "values": tensor.values()}
        spec["stored"], spec["layout"] = "sparse", layout
        spec["parts"] = [self._keep(part, f"{name}.{part_name}") for part_name, part in parts.items()]


def _is_storable(tensor: Any) -> bool:
    if tensor.is_quantized or tensor.device.type == "meta":
        return False
    if _bare(tensor.layout) == "strided":
        return _has_memory(tensor) or _has_memory(_own_copy(tensor.detach()))
    return _bare(tensor.layout) in _LAYOUTS


def _has_memory(tensor: Any) -> bool:
    """A wrapper subclass has none, and safetensors would read it all the same; a copy of it may have."""
    try:
        return not tensor.numel() or bool(tensor.untyped_storage().data_ptr())
    except (NotImplementedError, RuntimeError):
        return False


def _describe(tensor: Any) -> str:
    return f"{_bare(tensor.layout)} tensor {list(tensor.shape)} {_bare(tensor.dtype)} on {tensor.device}"


def encode_scalar(value: Any) -> Any:
    """A Python or torch constant as JSON. bool before int, since True is an int."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, complex):
        return {"complex": [repr(float(value.real)), repr(float(value.imag))]}
    return _encode_torch_object(value)


def _encode_torch_object(value: Any) -> Any:
    kind = type(value).__name__
    if kind in _TORCH_CONSTANTS:
        return {"torch": _bare(value)}
    if kind == "device":
        return {"device": str(value)}
    if kind == "Generator":
        return None
    if kind in ("SymInt", "SymFloat", "SymBool"):
        return encode_scalar({"SymInt": int, "SymFloat": float, "SymBool": bool}[kind](value))
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a numpy scalar
        return encode_scalar(value.item())
    return {"opaque": kind}


def _bare(constant: Any) -> str:
    return str(constant).removeprefix("torch.")


def _own_copy(tensor: Any) -> Any:
    """On the CPU, contiguous, sharing memory with nothing: what safetensors insists on."""
    copy = tensor.cpu().contiguous()
    shares = tensor.device.type == "cpu" and copy.data_ptr() == tensor.data_ptr()
    return copy.clone() if shares else copy
