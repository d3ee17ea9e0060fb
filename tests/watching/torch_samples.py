"""torch's own functions and modules with its own sample inputs, as its test suite has them."""

from __future__ import annotations

import copy
import itertools
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils._pytree import tree_leaves

if "expecttest" not in sys.modules:  # torch's test suite imports it for tests that are not ours
    try:
        import expecttest  # noqa: F401
    except ImportError:
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        vars(sys.modules["expecttest"])["TestCase"] = unittest.TestCase

_of_torch = pytest.importorskip("torch.testing._internal.common_methods_invocations", exc_type=ImportError)
_modules = pytest.importorskip("torch.testing._internal.common_modules", exc_type=ImportError)

UNSTEADY = ("empty", "new_empty", "linalg.lstsq")
"""They return what lies in fresh memory, or some of it: other values each time, with us or without."""


class Sample(NamedTuple):
    """`call(*given)` is one call of what `name` says."""

    name: str
    call: Callable[..., Any]
    given: Any

    def fresh(self, grad: bool) -> tuple[Any, ...]:
        """Its own copy of what is given, since a call may change it."""
        try:
            found: tuple[Any, ...] = copy.deepcopy(self.given)
        except RuntimeError:  # a tensor with a graph
            return self.given  # type: ignore[no-any-return]
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.requires_grad_(grad)
        return found


def functions(dtype: torch.dtype, most: int | None, only: str | None = None) -> Iterator[Sample]:
    for op in _of_torch.op_db:
        name = ".".join(filter(None, (op.name, op.variant_test_name)))
        if dtype not in op.supported_dtypes("cpu") or op.name.startswith(UNSTEADY):
            continue
        if only is not None and name != only:
            continue
        torch.manual_seed(3)
        call = _apply(op)
        grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        for found in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), most):
            yield Sample(name, call, (found.input, found.args, found.kwargs))


@cache
def a_few_functions() -> list[Sample]:
    """To make the samples takes longer than to call them."""
    return list(functions(torch.float32, 4))


def _apply(op: Any) -> Callable[..., Any]:
    return lambda first, args, kwargs: op(first, *args, **kwargs)


def modules(training: bool, most: int | None) -> Iterator[Sample]:
    for info in _modules.module_db:
        torch.manual_seed(3)
        given = info.module_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
        )
        for found in itertools.islice(given, most):
            if found.forward_input is None:
                continue
            made = found.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).train(training)
            forward = found.forward_input
            yield Sample(info.name, _call, (module, forward.args, forward.kwargs))


def _call(module: Any, args: Any, kwargs: Any) -> Any:
    return module(*args, **kwargs)
