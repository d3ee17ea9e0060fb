"""The whole state of a training at one moment: taken, judged, compared with the objects there are, put back.

Modules and optimizers are read and written directly, tensor by tensor: their own load_state_dict would cast
optimizer state to the dtype of the weights and leave out buffers that are not persistent. With sharded
weights each rank takes its own shards, and talks to nobody. Other objects have state_dict/load_state_dict.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from nanwatch.act.attention_masks import is_band
from nanwatch.act.plain_values import Putter, Taken, fits, plain_tensors
from nanwatch.messages import say
from nanwatch.replay.blame import looks_like_mask
from nanwatch.tensors import is_finite, norms_by_device, numbers
from nanwatch.watching.forbidden import was_so_before
from nanwatch.watching.module_state import tensor_of
from nanwatch.watching.own_values import any_weight
from nanwatch.watching.randomness import Rng, numpy_state, python_state
from nanwatch.watching.ranks import is_replicated


class Unfit(Exception):
    """A snapshot that cannot be used; the sentence says why."""


@dataclass(slots=True)
class State:
    """One snapshot in host memory."""

    step: int
    outline: dict[str, Any]
    """All but the tensors, as JSON can hold it."""
    tensors: dict[str, Tensor]
    left_out: list[str] = field(default_factory=list)
    """Keys of what could not be taken."""

    def signature(self) -> str:
        """Alike for snapshots of the same objects: their kinds, names and shapes."""
        weights = {n: [str(t.dtype), *t.shape] for n, t in self.tensors.items() if ".weights." in n}
        kinds = [[o["class"], [g["params"] for g in o.get("groups", ())]] for o in self.outline["objects"]]
        text = json.dumps([kinds, weights], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def can_be_taken(thing: Any) -> bool:
    if isinstance(thing, nn.Module | torch.Generator | Optimizer):
        return True
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def take(objects: Sequence[Any], step: int, spare: dict[str, Tensor] | None = None) -> State:
    """A copy of all state in host memory, in that of `spare` copies as far as they fit."""
    taken = Taken(spare)
    with torch.no_grad():
        in_modules = {id(p) for o in objects if isinstance(o, nn.Module) for p in o.parameters()}
        parts = [_outline_of(o, f"{i}.{_class_of(o)}", taken, in_modules) for i, o in enumerate(objects)]
        outline = {"objects": parts, "random": taken.outline(_random_now(), "random")}
        taken.copy()
    return State(step, outline, taken.tensors, taken.left_out)


def what_is_not_finite(state: State) -> str | None:
    """The name of the first value that is NaN or Inf, or None. An infinite mask in a buffer is on purpose;
    what was so before the training began, or was left so by an update on purpose, does no harm;
    the numbers of a scheduler may be (the best loss so far is inf before the first)."""
    reals = [t for t in state.tensors.values() if t.is_floating_point() or t.is_complex()]
    if not all(map(math.isfinite, norms_by_device(reals))):
        for name, tensor in state.tensors.items():
            if is_finite(tensor) or (".buffers." in name and _is_mask(tensor)):
                continue
            if any(f".{kind}." in name for kind in ("weights", "buffers", "state")) and was_so_before(tensor):
                continue
            return name
    for i, part in enumerate(state.outline["objects"]):
        for number, group in enumerate(part.get("groups", ())):
            for key, value in group["settings"]:
                if isinstance(value, float) and (math.isnan(value) or (key == "lr" and math.isinf(value))):
                    return f"{i}.{part['class']}.param_groups.{number}.{key}"
    return None


def check(state: State, objects: Sequence[Any]) -> None:
    """Raises Unfit where the state is not one of these objects."""
    parts = state.outline["objects"]
    if len(parts) != len(objects):
        raise Unfit(say("snapshot.other_objects", found=len(parts), expected=len(objects)))
    for part, thing in zip(parts, objects, strict=True):
        if not isinstance(thing, nn.Module) and part["class"] != _class_of(thing):
            raise Unfit(say("snapshot.other_class", found=part["class"], expected=_class_of(thing)))
        now = dict(_identity(thing))
        saved = {name: [state.tensors[key] for key in keys] for name, keys in part.get("identity", ())}
        for name in [*saved, *now]:
            if (name not in now or name not in saved) and name in _unset(part, thing):
                continue
            if name not in now or name not in saved:
                where = "snapshot.only_in_snapshot" if name in saved else "snapshot.not_in_snapshot"
                raise Unfit(say(where, name=name, thing=_class_of(thing)))
            if not fits(saved[name], now[name]):
                there, here = _described(saved[name]), _described(now[name])
                raise Unfit(say("snapshot.other_shape", name=name, there=there, here=here))
        groups = part.get("groups", ())
        sizes, sizes_now = [g["params"] for g in groups], [_shapes(g) for g in _groups(thing)]
        if sizes_now[: len(sizes)] != sizes:  # groups may have been added since
            raise Unfit(say("snapshot.other_groups", thing=part["class"]))


def put_back(state: State, objects: Sequence[Any], random_states: bool = True) -> None:
    """Writes the state into the objects, which it is known to fit. Raises Unfit, with nothing changed, where
    an object refuses it."""
    putter = Putter(state.tensors)
    pairs = list(zip(state.outline["objects"], objects, strict=True))
    with torch.no_grad(), torch._C.DisableTorchFunction():
        _load_all([(p, o) for p, o in pairs if p["kind"] == "object"], putter)
        for part, thing in pairs:
            if part["kind"] == "module":
                _put_module(part, thing, putter)
            elif part["kind"] == "optimizer":
                _put_optimizer(part, thing, putter)
            elif part["kind"] == "generator":
                thing.set_state(putter.fresh(part["state"]))
        for thing in objects:
            for p in _weights_of(thing):
                p.grad = None  # it belongs to a step that no longer happened
        if random_states:
            _put_random(putter.value(state.outline["random"]))


def _outline_of(thing: Any, name: str, taken: Taken, in_modules: set[int]) -> dict[str, Any]:
    part: dict[str, Any] = {"kind": "object", "class": _class_of(thing)}
    if isinstance(thing, nn.Module):
        part["kind"] = "module"
        inner = _unwrapped(thing)
        part["weights"] = {
            n: taken.outline(p, f"{name}.weights.{n}") for n, p in inner.named_parameters() if not is_lazy(p)
        }
        part["buffers"] = {
            n: taken.outline(m._buffers[b], f"{name}.buffers.{n}") for n, m, b in _buffers(inner)
        }
        extra = [(n, m) for n, m in inner.named_modules() if _has_extra(m)]
        part["extra"] = {n: taken.outline(m.get_extra_state(), f"{name}.extra.{n}") for n, m in extra}
        known = part["weights"] | part["buffers"]
        part["identity"] = [
            [n, known[n]["tensor"]] for n, _ in _identity(thing) if "tensor" in (known[n] or ())
        ]
    elif isinstance(thing, Optimizer):
        part["kind"] = "optimizer"
        part |= _outline_of_optimizer(thing, name, taken, in_modules)
    elif isinstance(thing, torch.Generator):
        part["kind"] = "generator"
        part["state"] = taken.outline(thing.get_state(), f"{name}.state")
    else:
        part["state"] = taken.outline(thing.state_dict(), name)
    return part


def _outline_of_optimizer(
    optimizer: Optimizer, name: str, taken: Taken, in_modules: set[int]
) -> dict[str, Any]:
    params = _weights_of(optimizer)
    place = {id(p): i for i, p in enumerate(params)}
    groups = [
        {
            "params": _shapes(group),
            "settings": [
                [k, taken.outline(v, f"{name}.param_groups.{i}.{k}")]
                for k, v in group.items()
                if k != "params"
            ],
        }
        for i, group in enumerate(optimizer.param_groups)
    ]
    state = []
    for key, value in optimizer.state.items():
        where: Any = place.get(id(key), key)
        if not isinstance(where, Tensor):  # else of a parameter that it no longer has
            state.append(
                [taken.outline(where, f"{name}.state.key"), taken.outline(value, f"{name}.state.{where}")]
            )
    loose = {i: p for i, p in enumerate(params) if id(p) not in in_modules}
    weights = [[i, taken.outline(p, f"{name}.weights.{i}")] for i, p in loose.items()]
    return {"groups": groups, "state": state, "weights": weights}


def _put_module(part: dict[str, Any], module: nn.Module, putter: Putter) -> None:
    inner = _unwrapped(module)
    weights = dict(inner.named_parameters())
    for name, outline in part["weights"].items():
        _put_weight(outline, weights[name], putter)
    modules = dict(inner.named_modules())
    for name, outline in part["buffers"].items():
        path, _, buffer = name.rpartition(".")
        if path in modules:
            owner, now = modules[path], tensor_of(modules[path], buffer)
            if outline is None or "left out" in outline:
                owner._buffers[buffer] = None if outline is None else now
            elif now is None or not putter.into(outline, now):
                owner._buffers[buffer] = putter.fresh(outline, now if now is not None else any_weight(inner))
    for name, outline in part["extra"].items():
        if name in modules:
            modules[name].set_extra_state(
                putter.value(outline, modules[name].get_extra_state(), in_place=False)
            )


def _put_optimizer(part: dict[str, Any], optimizer: Optimizer, putter: Putter) -> None:
    params = _weights_of(optimizer)
    for i, outline in part["weights"]:
        _put_weight(outline, params[i], putter)
    for group, saved in zip(optimizer.param_groups, part["groups"], strict=False):
        for key, outline in saved["settings"]:
            group[key] = putter.value(outline, group.get(key))
    kept = {}
    for where, outline in part["state"]:
        owner: Any = params[where] if isinstance(where, int) else putter.value(where)
        like = owner if isinstance(owner, Tensor) else None
        kept[owner] = putter.value(outline, optimizer.state.get(owner), like)
    optimizer.state.clear()
    optimizer.state.update(kept)


def _put_weight(outline: Any, weight: Tensor, putter: Putter) -> None:
    if "tensor" in outline and not putter.into(outline, weight):
        weight.data = putter.fresh(outline, weight)


def _load_all(pairs: list[tuple[dict[str, Any], Any]], putter: Putter) -> None:
    """Objects with a load_state_dict of their own: all of them, or none."""
    before: list[tuple[Any, Any]] = []
    try:
        for part, thing in pairs:
            now = thing.state_dict()
            taken = Taken()
            outline = taken.outline(now, "")
            taken.copy()
            before.append((thing, Putter(taken.tensors).value(outline, now, in_place=False)))
            thing.load_state_dict(putter.value(part["state"], now, in_place=False))
    except Exception as error:
        for thing, state in before:
            with contextlib.suppress(Exception):
                thing.load_state_dict(state)
        raise Unfit(
            say(
                "snapshot.refused",
                thing=type(before[-1][0]).__name__,
                error=f"{type(error).__name__}: {error}",
            )
        ) from error


def _random_now() -> dict[str, Any]:
    torchs = Rng.now()
    return {"cpu": torchs.cpu, "cuda": torchs.cuda, "python": python_state(), "numpy": numpy_state()}


def _put_random(saved: dict[str, Any]) -> None:
    cuda = saved["cuda"]
    if cuda and torch.cuda.is_available():
        torch.cuda.init()
    cuda = [entry for entry in cuda if torch.cuda.is_initialized() and entry[0] < torch.cuda.device_count()]
    Rng(saved["cpu"], tuple(cuda), saved["python"], saved["numpy"]).put_back()


def _identity(thing: Any) -> Iterator[tuple[str, list[Tensor]]]:
    """What makes it this model and no other: its weights and persistent buffers."""
    if not isinstance(thing, nn.Module):
        return
    inner = _unwrapped(thing)
    for name, weight in inner.named_parameters():
        if _is_made(weight):
            yield name, plain_tensors(weight) or []
    for name, owner, buffer in _buffers(inner):
        tensor = owner._buffers[buffer]
        if tensor is not None and buffer not in owner._non_persistent_buffers_set and _is_made(tensor):
            yield name, plain_tensors(tensor) or []


def _unset(part: dict[str, Any], thing: Any) -> set[str]:
    """Buffers that were None then, or are now: a call sets them."""
    then = {name for name, outline in part.get("buffers", {}).items() if outline is None}
    return then | {name for name, owner, b in _buffers(_unwrapped(thing)) if owner._buffers[b] is None}


def _is_made(tensor: Tensor) -> bool:
    return plain_tensors(tensor) is not None


def _buffers(module: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    for path, owner in module.named_modules():
        for buffer, _ in owner._buffers.items():  # TorchScript's cannot be gone through otherwise
            yield f"{path}.{buffer}" if path else buffer, owner, buffer


def _has_extra(module: nn.Module) -> bool:
    return type(module).get_extra_state is not nn.Module.get_extra_state


def _unwrapped(module: nn.Module) -> nn.Module:
    """Without what torch.compile or a data parallel wrapper puts around it: next time it may be another."""
    while True:
        if is_replicated(module):
            module = module.module  # type: ignore[assignment]
        elif "_orig_mod" in module._modules and isinstance(module._modules["_orig_mod"], nn.Module):
            module = module._orig_mod  # type: ignore[assignment]
        else:
            return module


def _class_of(thing: Any) -> str:
    return type(_unwrapped(thing) if isinstance(thing, nn.Module) else thing).__name__


def _groups(thing: Any) -> list[Any]:
    return thing.param_groups if isinstance(thing, Optimizer) else []


def _weights_of(thing: Any) -> list[Tensor]:
    if isinstance(thing, nn.Module):
        return list(thing.parameters())
    return [p for group in _groups(thing) for p in group["params"]]


def _shapes(group: dict[str, Any]) -> list[Any]:
    return [[str(p.dtype), *p.shape] for p in group["params"]]


def _described(tensors: list[Tensor]) -> str:
    return ", ".join(f"{'x'.join(map(str, t.shape)) or '-'} {str(t.dtype)[6:]}" for t in tensors)


def _is_mask(tensor: Tensor) -> bool:
    found = numbers(tensor)
    return found is not None and (looks_like_mask(found) or is_band(tensor))
