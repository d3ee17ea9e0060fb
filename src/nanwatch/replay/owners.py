"""Modules whose methods the program calls by name: `model.encode(x)` or `model.forward(x)` runs in `model`,
which nobody called. Looked for when there is something to report; nothing is kept while the program runs."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from itertools import takewhile
from types import CodeType, FunctionType

from torch import nn

from nanwatch.watching.module_calls import path_of
from nanwatch.watching.own_values import any_weight
from nanwatch.watching.stack import Stack
from nanwatch.watching.tape import Entry, tensors_of_call

NOT_THE_MODEL = ("step", "loss", "fit", "train", "__init__")
"""Words in the names of methods that train or build a model rather than compute it (`training_step`)."""

Methods = dict[CodeType, list[nn.Module]]
CALLS_FORWARD = nn.Module._call_impl.__code__


def owners_of(
    stack: Stack, called: tuple[nn.Module, ...], entries: Iterable[Entry] = ()
) -> tuple[nn.Module, ...]:
    """The modules in whose methods the stack lies, outermost first; those that were called are among them.
    `entries`: of the tape; they tell models of one class from each other."""
    by_code = _methods_of_living_modules()
    inner = _forward_inside(stack, called[-1], by_code) if called else ()
    return (*_methods_under_way(stack, called, entries, by_code), *called, *inner)


def is_part_of_a_model(stack: Stack, called: tuple[nn.Module, ...], entries: Iterable[Entry] = ()) -> bool:
    """Whether this belongs to what a model computes, though nobody called the model: it is in a method of it;
    or in a module that was called, a loss as far as one could see, from its `forward`."""
    methods = _methods_under_way(stack, called, entries, _methods_of_living_modules()).values()
    return "forward" in methods if called else bool(methods)


def module_path(stack: Stack, called: tuple[nn.Module, ...]) -> str | None:
    """The path of the innermost module from the outermost in whose code the stack lies."""
    return path_of(owners_of(stack, called))


def _methods_under_way(
    stack: Stack, called: tuple[nn.Module, ...], entries: Iterable[Entry], by_code: Methods
) -> dict[nn.Module, str]:
    """Module -> the name of its method, outermost first; up to the first that was called."""
    found: dict[nn.Module, str] = {}
    for depth in reversed(range(_outside_of(called, stack), len(stack))):
        code = stack[depth][0]
        if code not in by_code or any(word in code.co_name for word in NOT_THE_MODEL):
            continue
        fitting = by_code[code]
        if called:
            fitting = [m for m in fitting if m not in called and called[0] in list(m.modules())]
        if len(fitting) > 1:
            fitting = [m for m in fitting if _is_at_work(m, stack[depth:], entries)]
        if len(fitting) == 1:
            found.setdefault(fitting[0], code.co_name)
    if found and any_weight(next(iter(found))) is None:
        return {}  # nothing to learn: a loss or a helper, not a model
    return found


def _forward_inside(stack: Stack, called: nn.Module, by_code: Methods) -> Iterator[nn.Module]:
    """The parts of a module whose `forward` it calls by name."""
    parts = list(called.modules())
    for code, _ in reversed(tuple(takewhile(lambda place: place[0] is not CALLS_FORWARD, stack))):
        living = by_code.get(code, ()) if code.co_name == "forward" else ()
        fitting = [m for m in living if m in parts]
        if len(fitting) == 1 and fitting[0] is not called:
            yield fitting[0]


def _outside_of(called: tuple[nn.Module, ...], stack: Stack) -> int:
    """Where the frames begin that called the first of these; what lies further in is theirs."""
    calls = [depth for depth, (code, _) in enumerate(stack) if code is CALLS_FORWARD]
    return calls[-1] + 1 if called and calls else 0


def _is_at_work(module: nn.Module, method: Stack, entries: Iterable[Entry]) -> bool:
    """Whether something on the tape was called from the same call of this method, and is a part of the
    module or was given a weight of it."""
    parts = set(map(id, module.modules()))
    weights = {id(t) for t in (*module.parameters(), *module.buffers())}
    for entry in entries:
        if not _is_within(entry.stack, method):
            continue
        given = tensors_of_call(entry.args, entry.kwargs)
        if id(entry.call) in parts or any(id(t) in weights for t in given):
            return True
    return False


def _is_within(stack: Stack, method: Stack) -> bool:
    """Whether it goes through the same call of a method, at whatever line of it."""
    depth = len(stack) - len(method)
    return depth >= 0 and stack[depth][0] is method[0][0] and stack[depth + 1 :] == method[1:]


def _methods_of_living_modules() -> Methods:
    known: Methods = {}
    for module in [o for o in gc.get_objects() if issubclass(type(o), nn.Module)]:
        for cls in type(module).__mro__:
            if cls is nn.Module:
                break
            for member in vars(cls).values():
                if isinstance(member, FunctionType):
                    known.setdefault(member.__code__, []).append(module)
    return known
