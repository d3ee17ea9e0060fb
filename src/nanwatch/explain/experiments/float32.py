"""The step once more with every narrow value widened: half and quarter precision become float32.

A dispatch mode below autograd widens the narrow inputs of each op, so that all it makes is float32, and turns
casts to a narrow dtype into casts to float32. Autograd wants gradients of the dtype of the weight, so the
modules hold float32 copies of their weights for the time of the run. Other tensors of the program keep their
dtype: a narrow one that is changed in place is changed in its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from nanwatch.explain.at_birth import finite_where_it_matters
from nanwatch.explain.birth import NARROW, BirthOp
from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.infinities import OUTSIDE, origins_of_birth
from nanwatch.explain.mechanism import INF_ARITHMETIC, INHERITED
from nanwatch.explain.text import Text
from nanwatch.replay.again import Again, Changes
from nanwatch.replay.blame import silent_damage
from nanwatch.replay.op_facts import op_facts
from nanwatch.replay.roles import Roles
from nanwatch.watching.tape import map_tensors, tensors_in

NAME = "float32"
TITLE = Text("running the step in float32", "用 float32 重新运行这一步")
FINITE = Text("finite", "结果有限")
FAILS = Text("fails in float32 too", "用 float32 也失败")

STORED = Text(
    "finite but for what the failing step had already stored", "除了失败的那一步已经存下的值之外，结果有限"
)


def applies(case: Case) -> bool:
    return bool(case.tape.entries) and case.phase not in ("weights", "optimizer") and uses_narrow(case)


def run(case: Case) -> Outcome:
    again = in_float32(case)
    finite = finite_where_it_matters(case, again)
    if finite and case.trouble.seen_in == "trace":
        finite = not silent_damage(again.tracer.trace, again.tracer.step)
    if finite is None:
        return Outcome(None, "")
    if not finite and only_what_was_stored(case, again):
        return Outcome(True, STORED.say())
    return Outcome(finite, (FINITE if finite else FAILS).say())


def only_what_was_stored(case: Case, again: Again) -> bool:
    """Whether nothing goes bad in this run: all that is bad in it is what the birth op had made, in a cache
    that the model keeps."""
    made = None if case.birth is None else case.birth.output
    ops = again.tracer.trace.ops.values()
    if made is None or any(op.makes_inf and not op.deliberate for op in ops):
        return False
    outside = [o for op in ops for o in op.bad_inputs if o.source is None and not o.from_python]
    born = any(op.makes_nan and not op.bad_inputs for op in ops)
    return bool(outside) and not born and all(_same(o.value, made) for o in outside)


def _same(tensor: torch.Tensor | None, made: torch.Tensor) -> bool:
    """By value: the cache may have been widened already."""
    if tensor is None or tensor.shape != made.shape:
        return False
    a, b = tensor.detach().float(), made.float()
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def in_float32(case: Case) -> Again:
    return rerun_in(case, torch.float32)


def rerun_in(case: Case, dtype: torch.dtype) -> Again:
    """The step again, with `dtype` in the place of every narrow one. Copies of weights that autocast keeps
    are of this run only."""
    torch.clear_autocast_cache()
    try:
        with wide_weights(case.models, dtype):
            return case.rerun(Changes(around=lambda: Widening(dtype), outside=_before_the_cast(case)))
    finally:
        torch.clear_autocast_cache()


@contextlib.contextmanager
def wide_weights(models: list[nn.Module], dtype: torch.dtype = torch.float32) -> Iterator[None]:
    """Every narrow parameter of these models is a copy in this dtype; tied ones stay tied."""
    wide: dict[int, nn.Parameter] = {}
    swapped: list[tuple[nn.Module, str, nn.Parameter]] = []
    flat: list[tuple[nn.Module, list[Any]]] = []
    try:
        for module in (m for model in models for m in model.modules()):
            for name, parameter in module._parameters.items():
                if parameter is not None and parameter.dtype in NARROW and id(parameter) not in wide:
                    copy = nn.Parameter(parameter.detach().to(dtype, copy=True), parameter.requires_grad)
                    wide[id(parameter)] = copy
                    wide[id(copy)] = copy
                if parameter is not None and id(parameter) in wide and wide[id(parameter)] is not parameter:
                    swapped.append((module, name, parameter))
                    module._parameters[name] = wide[id(parameter)]
            weights = module.__dict__.get("_flat_weights")  # a recurrent layer keeps its own list
            if isinstance(weights, list):
                flat.append((module, weights))
                module.__dict__["_flat_weights"] = [wide.get(id(w), w) for w in weights]
        yield
    finally:
        for module, name, parameter in swapped:
            module._parameters[name] = parameter
        for module, weights in flat:
            module.__dict__["_flat_weights"] = weights


def uses_narrow(case: Case) -> bool:
    """Whether anything of the step was narrow: autocast, weights, what calls were given or made."""
    if case.birth is not None and (case.birth.narrow or case.birth.reads_narrow):
        return True
    for entry in case.tape.entries:
        if any(enabled for _, enabled, _ in entry.context.autocast):
            return True
        if any(
            t.dtype in NARROW for t in (*tensors_in((entry.args, entry.kwargs)), *tensors_in(entry.outputs))
        ):
            return True
    return any(t.dtype in NARROW for m in case.models for t in (*m.parameters(), *m.buffers()))


def _before_the_cast(case: Case) -> Any:
    """Data that was cast before the model was given it: what it was before, in its place."""
    birth = overflow_in_data(case) or (case.birth if case.phase in ("data", "loss") else None)
    if birth is None or not birth.narrow or birth.output is None:
        return None
    made = birth.again(lambda _, t: t.float() if t.dtype in NARROW else t, torch.float32)
    if not made or made[0].shape != birth.output.shape:
        return None
    wide, narrow = made[0], birth.output

    def outside(tensor: torch.Tensor) -> torch.Tensor:
        return wide.clone() if tensor.dtype == narrow.dtype and _same(tensor, narrow) else tensor

    return outside


def overflow_in_data(case: Case) -> BirthOp | None:
    """Where the infinity that the birth op was given came with the data: the op of the program's own code
    that made it of finite values."""
    if case.mechanism.kind not in (INF_ARITHMETIC, INHERITED):
        return None
    for origin in origins_of_birth(case):
        if origin.kind == OUTSIDE and origin.operand is not None:
            op = Roles(case.trouble).origin(origin.operand.key)
            if op is not None and op.makes_inf:
                return BirthOp(op)
    return None


class Widening(TorchDispatchMode):
    """No op makes anything narrower than this dtype."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._dtype = dtype

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        facts = op_facts(function)
        if facts.is_view and not _casts(args, kwargs):
            return function(*args, **kwargs)
        given = {**dict(zip(facts.names, args, strict=False)), **kwargs}
        kept = [t for n in facts.written for t in tensors_in(given.get(n)) if _narrow(t)]
        copies = {id(t): t.to(self._dtype) for t in kept}

        def wide(value: Any) -> Any:
            if isinstance(value, torch.dtype):
                return self._dtype if value in NARROW else value
            return map_tensors(value, lambda t: copies.get(id(t), t.to(self._dtype) if _narrow(t) else t))

        made = function(*(wide(a) for a in args), **{n: wide(v) for n, v in kwargs.items()})
        if not kept:
            return made
        originals = {id(copies[id(t)]): t.copy_(copies[id(t)]) for t in kept}
        return map_tensors(made, lambda t: originals.get(id(t), t))


def _narrow(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in NARROW


def _casts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(value in NARROW for value in (*args, *kwargs.values()) if isinstance(value, torch.dtype))
