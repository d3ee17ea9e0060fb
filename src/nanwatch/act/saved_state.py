"""What of an object that is saved is the state of a training, and which of its tensors are not finite.

Only states are judged: NaN in data that somebody saves on purpose is nobody's business. A state is

- a parameter, a module, an optimizer, or what their `state_dict()` returns, however deep in dicts and lists;
- a plain dict of tensors that is named like one: a key is a path ("layers.0.scale") or ends like a parameter
  or a running statistic of torch ("weight", "bias", "running_mean"), or a value is a parameter;
- a dict that stands under a name everybody uses for it ("state_dict", "model", "optimizer").

A buffer of zeros and -inf is an attention mask, and healthy; so is one of numbers in a band of -inf (ALiBi).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nanwatch.act.attention_masks import is_band
from nanwatch.records import Numbers
from nanwatch.tensors import many_numbers, norms_by_device
from nanwatch.watching.about_models import living
from nanwatch.watching.forbidden import was_infinite_before, was_so_before

STATE_NAMES = frozenset(
    ("state_dict", "model_state_dict", "optimizer_state_dict", "model", "module", "optimizer", "ema")
)
"""Keys under which checkpoints keep states."""
PARAMETER = re.compile(r"(^|[._])(weight|bias)(_|$)")
NO_MASK = re.compile(r"(^|[._])weight(_|$)|(^|\.)bias$|(^|\.)running_(mean|var)$")
"""A bias by which attention is masked has a longer name."""
STATISTIC = re.compile(r"(^|\.)running_(mean|var)$")
PATH = re.compile(r"\w+(\.\w+)+")

HOLDS = (Tensor, nn.Module, Optimizer, Mapping, list, tuple)
"""What may be part of a state or hold one; all else is passed over, quickly: data has many numbers."""

Found = Iterator[tuple[str, Tensor, bool]]
"""Name, tensor, and whether it may be a mask."""


@dataclass(frozen=True)
class BadTensor:
    """A tensor of a state that is not finite."""

    numbers: Numbers
    tensor: Tensor
    may_be_a_start: bool
    """A buffer that is infinite throughout, as that of a running minimum before it has seen anything."""


def bad_tensors(saved: Any, is_state: bool = False) -> list[BadTensor]:
    """The tensors of a state that are not finite, with their counts. Every tensor is read once; a second time
    only when one is bad. `is_state`: the whole object is known to be one."""
    if not isinstance(saved, HOLDS):
        return []
    with torch._C.DisableTorchFunction():
        found = list(_without_copies(_states_in(saved, "", is_state, set())))
        weights = [(name, t) for name, t, may_be_mask in found if not may_be_mask]
        others = [(name, t) for name, t, may_be_mask in found if may_be_mask]
        bad = [
            BadTensor(n, t, _is_a_start(n))
            for n, t in _measured(others)
            if not _is_mask(n, t) and not _is_meant(n, t)
        ]
        if not all(math.isfinite(float(norm)) for norm in norms_by_device([t for _, t in weights])):
            bad = [BadTensor(n, t, False) for n, t in _measured(weights) if not _is_meant(n, t)] + bad
        return bad


def _is_meant(n: Numbers, tensor: Tensor) -> bool:
    return _is_forbidding(n, tensor) or was_so_before(tensor)


def _is_forbidding(n: Numbers, tensor: Tensor) -> bool:
    """A weight with -inf in places where there is nothing to learn: what is saved of it has no gradient, but
    the optimizer has the weight itself."""
    if n.nan or n.posinf:
        return False
    place = _place_of(tensor)
    learned = (p for o in living(Optimizer) for group in o.param_groups for p in group["params"])
    return any(_place_of(p) == place and was_infinite_before(p) for p in learned)


def _measured(named: list[tuple[str, Tensor]]) -> list[tuple[Numbers, Tensor]]:
    """Those that are not finite."""
    tensors = [t for _, t in named]
    measured = many_numbers(tensors, [name for name, _ in named])
    return [(n, t) for n, t in zip(measured, tensors, strict=True) if not n.finite]


def is_sharded(model: nn.Module) -> bool:
    """Whether this process holds only its part of some weights."""
    return any(hasattr(p, "device_mesh") or hasattr(p, "_handle") for p in model.parameters())


def _states_in(thing: Any, name: str, inside: bool, seen: set[int]) -> Found:
    """The tensors of all states in `thing`. `inside`: it is part of one already."""
    if isinstance(thing, Tensor):
        if inside or isinstance(thing, nn.Parameter):
            yield name, thing, not isinstance(thing, nn.Parameter) and _may_be_mask(name)
        return
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, nn.Module):
        yield from ((_joined(name, key), p.detach(), False) for key, p in thing.named_parameters())
        yield from ((_joined(name, key), b, _may_be_mask(key)) for key, b in thing.named_buffers())
    elif isinstance(thing, Optimizer):
        states = enumerate(thing.state.values())
        yield from ((key, t, False) for key, t, _ in _states_in(dict(states), name, True, seen))
    elif isinstance(thing, Mapping):
        yield from _states_in_mapping(thing, name, inside, seen)
    else:
        for index, value in enumerate(thing):
            if isinstance(value, HOLDS):
                yield from _states_in(value, _joined(name, index), inside, seen)


def _states_in_mapping(thing: Mapping[Any, Any], name: str, inside: bool, seen: set[int]) -> Found:
    if _is_optimizer_state(thing):
        yield from ((key, t, False) for key, t, _ in _states_in(thing["state"], name, True, seen))
        return
    inside = inside or _is_module_state(thing)
    for key, value in thing.items():
        if not isinstance(value, HOLDS):
            continue
        known = isinstance(value, Mapping) and key in STATE_NAMES
        yield from _states_in(value, _joined(name, key), inside or known, seen)


def _is_optimizer_state(thing: Mapping[Any, Any]) -> bool:
    return isinstance(thing.get("state"), Mapping) and isinstance(
        thing.get("param_groups"), (list, tuple, Mapping)
    )


def _is_module_state(thing: Mapping[Any, Any]) -> bool:
    if hasattr(thing, "_metadata"):
        return True
    tensors = [(key, value) for key, value in thing.items() if isinstance(value, Tensor)]
    return any(
        isinstance(value, nn.Parameter)
        or (isinstance(key, str) and (PARAMETER.search(key) or STATISTIC.search(key) or PATH.fullmatch(key)))
        for key, value in tensors
    )


def _without_copies(found: Found) -> Found:
    """Without integers, and without the second name of tied weights."""
    seen = set()
    for name, tensor, may_be_mask in found:
        if not (tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized):
            continue
        place = _place_of(tensor)
        if place not in seen:
            seen.add(place)
            yield name, tensor, may_be_mask


def _place_of(tensor: Tensor) -> Any:
    if (
        type(tensor) not in (Tensor, nn.Parameter)
        or tensor.layout is not torch.strided
        or not tensor.data_ptr()
    ):
        return id(tensor)
    return tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride()


def _may_be_mask(name: str) -> bool:
    return not NO_MASK.search(name)


def _is_mask(n: Numbers, tensor: Tensor) -> bool:
    if n.nan or n.posinf:
        return False
    return (n.min in (None, 0) and n.max in (None, 0)) or is_band(tensor)


def _is_a_start(n: Numbers) -> bool:
    return n.nan == 0 and n.min is None and (n.posinf == 0 or n.neginf == 0)


def _joined(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)
