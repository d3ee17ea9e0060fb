"""What a function of torch's Python interface does, as far as the tape must know. Looked up once each."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

IN_PLACE = frozenset(
    f"__{name}__"
    for name in "setitem iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift".split()
)
DRAWS = tuple(
    "drop rand bern normal multinom gumbel rrelu poisson exponential sample uniform attention rnn lstm gru "
    "binomial geometric cauchy".split()
)
"""Words in the names of functions that may draw random numbers."""

ASKED = (
    "shape dtype device requires_grad grad grad_fn is_leaf ndim layout is_cuda is_sparse _version itemsize "
    "nbytes names is_quantized _base"
).split()
ASKING = (
    "size dim stride numel is_floating_point is_complex is_contiguous item element_size data_ptr tolist "
    "numpy backward register_hook __len__ __bool__ __float__ __int__ __index__ __format__ __repr__ __hash__ "
    "untyped_storage is_inference is_nonzero get_device retain_grad requires_grad_ storage_offset"
).split()
QUIET_NAMES = frozenset(("__set__", "__delete__", "_set_grad_enabled"))


GETTERS = frozenset(getattr(torch.Tensor, name).__get__ for name in ASKED if hasattr(torch.Tensor, name))
"""They call nothing and nobody."""


def _quiet_functions() -> frozenset[Any]:
    """Functions that only ask: they return no tensor, or one that is not theirs (`grad`)."""
    tensor = torch.Tensor
    quiet: set[Any] = set(GETTERS)
    quiet |= {getattr(tensor, name) for name in ASKING if hasattr(tensor, name)}
    quiet |= {torch.is_tensor, torch.is_floating_point, torch.numel, torch.is_grad_enabled, torch.manual_seed}
    quiet.discard(None)
    return frozenset(quiet)


_QUIET = _quiet_functions()


HANDS_OUT = frozenset(("numpy", "__array__", "__dlpack__"))
"""What gets the memory of a tensor from one of these can write there unseen."""


class FunctionFacts(NamedTuple):
    quiet: bool
    sets: bool
    """An attribute of a tensor: its data."""
    in_place: bool
    may_draw: bool
    hands_out: bool


@cache
def facts_of(function: Any) -> FunctionFacts:
    name = getattr(function, "__name__", "")
    hands_out = name in HANDS_OUT
    quiet = function in _QUIET or name in QUIET_NAMES or "record_function" in str(name) or hands_out
    in_place = name in IN_PLACE or (name.endswith("_") and not name.endswith("__"))
    return FunctionFacts(quiet, name == "__set__", in_place, any(word in name for word in DRAWS), hands_out)


def changes_its_input(function: Any, kwargs: dict[str, Any]) -> bool:
    """Whether calling `function` writes into its first argument (or into `out=`). A model is none of torch's,
    and must not be kept here."""
    if isinstance(function, torch.nn.Module):
        return False
    return facts_of(function).in_place or kwargs.get("out") is not None


def written_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What such a function writes into: `out=`, else its first argument, by whatever name."""
    if kwargs.get("out") is not None:
        return kwargs["out"]
    return args[0] if args else next(iter(kwargs.values()), None)
