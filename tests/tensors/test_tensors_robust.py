"""Any tensor, anywhere: wrappers, layouts, modes, threads, forks. Nothing raises, nothing is disturbed."""

from __future__ import annotations

import math
import os
import threading

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from nanwatch.tensors import is_finite, norm_and_verdict, numbers

pytestmark = pytest.mark.usefixtures("both_ways")

VALUES = [1.0, math.nan, -math.inf, 3.0]


class Tracked(torch.Tensor):
    pass


class Wrapper(torch.Tensor):
    """A wrapper subclass without memory of its own."""

    @staticmethod
    def __new__(cls, elem: torch.Tensor) -> Wrapper:
        made = torch.Tensor._make_wrapper_subclass(cls, elem.shape, dtype=elem.dtype, device=elem.device)
        made.inside = elem
        return made

    def __tensor_flatten__(self):
        return ["inside"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("measuring must not go through the wrapper")


class SilentWrapper(Wrapper):
    """One that does not say what it wraps."""

    __tensor_flatten__ = property()  # not there, for hasattr


def _bad() -> torch.Tensor:
    return torch.tensor(VALUES)


def _fake() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        return mode.from_tensor(_bad())


WITH_THESE_VALUES = {
    "parameter": lambda: torch.nn.Parameter(_bad()),
    "needs grad": lambda: _bad().requires_grad_() * 1,
    "subclass": lambda: _bad().as_subclass(Tracked),
    "wrapper": lambda: Wrapper(_bad()),
    "coo": lambda: _bad().to_sparse(),
    "csr": lambda: _bad().view(2, 2).to_sparse_csr(),
    "csc": lambda: _bad().view(2, 2).to_sparse_csc(),
    "bsr": lambda: _bad().view(2, 2).to_sparse_bsr((1, 1)),
    "nested": lambda: torch.nested.nested_tensor([_bad()[:1], _bad()[1:]]),
    "jagged": lambda: torch.nested.nested_tensor([_bad()[:1], _bad()[1:]], layout=torch.jagged),
    "jagged with holes": lambda: torch.nested.narrow(
        torch.cat([_bad(), _bad()]).view(2, 4),
        1,
        torch.tensor([0, 2]),
        torch.tensor([2, 2]),
        layout=torch.jagged,
    ),
    "mkldnn": lambda: _bad().to_mkldnn(),
    "functional": lambda: torch._to_functional_tensor(_bad()),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WITH_THESE_VALUES)
def test_values_are_found_below_any_wrapping(name: str) -> None:
    measured = numbers(WITH_THESE_VALUES[name]())
    assert (measured.count, measured.nan, measured.neginf) == (4, 1, 1), measured
    assert (measured.min, measured.max, measured.mean) == (1.0, 3.0, 2.0)
    assert not is_finite(WITH_THESE_VALUES[name]())


def _freed() -> torch.Tensor:
    whole = torch.ones(1000)
    part = whole[500:]
    whole.untyped_storage().resize_(0)
    return part


WITHOUT_VALUES = {
    "meta": lambda: torch.empty(3, device="meta"),
    "fake": _fake,
    "freed": _freed,
    "silent wrapper": lambda: SilentWrapper(_bad()),
    "masked": lambda: torch.masked.masked_tensor(_bad(), torch.tensor([True, False, False, True])),
    "packed": lambda: torch.zeros(4, dtype=torch.uint8).view(torch.bits8),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WITHOUT_VALUES)
def test_a_tensor_without_readable_values_gets_no_numbers(name: str) -> None:
    measured = numbers(WITHOUT_VALUES[name]())
    assert measured.finite and measured.min is None and measured.norm is None
    assert is_finite(WITHOUT_VALUES[name]())
    assert norm_and_verdict([WITHOUT_VALUES[name]()])[0].isfinite()


@pytest.mark.filterwarnings("ignore")
def test_quantized_values_are_those_they_stand_for() -> None:
    t = torch.quantize_per_tensor(torch.tensor([-1.0, 2.0]), 0.5, 0, torch.qint8)
    assert (numbers(t).min, numbers(t).max) == (-1.0, 2.0)
    assert is_finite(t)


def test_zero_tensors_hold_zeros() -> None:
    assert (numbers(torch._efficientzerotensor(5)).max, is_finite(torch._efficientzerotensor(5))) == (
        0.0,
        True,
    )


def test_inside_vmap_and_grad_the_values_below_are_seen() -> None:
    seen = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append((numbers(x).nan, is_finite(x)))
        return x.sum()

    torch.vmap(look)(torch.tensor([[1.0, math.nan], [2.0, 3.0]]))
    torch.func.grad(look)(torch.tensor([1.0, math.nan]))
    assert seen == [(1, False), (1, False)]


class _Forbids(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise AssertionError(f"seen by a dispatch mode: {func}")


class _ForbidsFunctions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise AssertionError(f"seen by a function mode: {func}")


SURROUNDINGS = {
    "dispatch mode": _Forbids,
    "function mode": _ForbidsFunctions,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference": torch.inference_mode,
    "no grad": torch.no_grad,
    "enable grad": torch.enable_grad,
}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_whatever_is_active_is_neither_seen_nor_disturbed(name: str) -> None:
    tensors = [
        _bad().requires_grad_(),
        torch.randn(9, 9).t(),
        torch.full((40,), 300.0).half(),
        torch.randn(3).to_sparse(),
    ]
    versions = [t._version for t in tensors]
    with SURROUNDINGS[name]():
        measured = [numbers(t) for t in tensors]
        verdicts = [is_finite(t) for t in tensors]
        norms = norm_and_verdict(tensors)
        rest = norm_and_verdict(tensors[1:])
    assert [m.nan for m in measured] == [1, 0, 0, 0]
    assert verdicts == [False, True, True, True]
    assert not norms[0].isfinite() and rest[0].isfinite() and not norms[0].requires_grad
    assert [t._version for t in tensors] == versions


def test_inference_tensors_are_measured() -> None:
    with torch.inference_mode():
        t = torch.tensor(VALUES)
    assert numbers(t).nan == 1 and not is_finite(t)


def test_gradients_are_measured_in_the_thread_of_the_backward_pass() -> None:
    seen = []
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: seen.append((threading.get_ident(), numbers(g).max, is_finite(g))))
    y.sum().backward()
    assert [entry[1:] for entry in seen] == [(1.0, True)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore")
def test_a_forked_child_measures_big_tensors_too() -> None:
    t = torch.ones(2_000_000)
    t[-1] = math.nan
    assert numbers(t).nan == 1
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        os._exit(0 if numbers(t).nan == 1 and not is_finite(t) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_many_threads_at_once() -> None:
    t, found = torch.randn(500_000), []
    threads = [threading.Thread(target=lambda: found.append(numbers(t))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1
