"""What torch computes, it computes bit for bit also while the audit looks: every function and module that
torch's own test suite has samples of."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from torch_samples import Sample, a_few_functions, functions, modules

from nanwatch.replay.live import LiveTracer
from nanwatch.replay.tracer import OpTracer
from nanwatch.watching.module_calls import Scope

Around = Callable[[], contextlib.AbstractContextManager[Any]]

SETTINGS: dict[str, Around] = {
    "grad": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}
OTHER_DTYPES = (torch.float64, torch.bfloat16, torch.complex64, torch.int64)
WITH_GRAD = ("grad", "autocast")
TRIES = 5
"""So often a call must give the same without us, before it is held against us that it does not with us."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def the_audit() -> tuple[LiveTracer, Around]:
    """One that never ends, and does not take offence at what torch's samples hold."""
    live = LiveTracer(math.inf)
    failed: list[BaseException] = []
    live.tell_errors_to(failed.append)
    live.begin_step(0)

    @contextlib.contextmanager
    def looking() -> Iterator[None]:
        live.phase = "forward"
        live.resume()
        assert live.on
        try:
            yield
        finally:
            live.pause()
            assert not failed

    return live, looking


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_nested or tensor.layout is not torch.strided:
        tensor = tensor.to_dense() if not tensor.is_nested else tensor.to_padded_tensor(0.0)
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def same(a: Any, b: Any) -> bool:
    """Bit for bit; one NaN is like another."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return repr(a) == repr(b)
    with torch.inference_mode():  # they may have been made so
        return same_values(values_of(a), values_of(b))


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype is not b.dtype or a.shape != b.shape:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    equal = a.contiguous().view(bits) == b.contiguous().view(bits)
    return bool((equal | (a.isnan() & b.isnan())).all())


def outcome(sample: Sample, setting: str, around: Around) -> list[Any]:
    """All that could differ: results, how they will be differentiated, derivatives, error, random state."""
    torch.manual_seed(7)
    given = sample.fresh(setting in WITH_GRAD)
    with SETTINGS[setting]():
        try:
            with around():
                results = tree_leaves(sample.call(*given))
        except Exception as error:
            return [type(error), str(error).partition("\n")[0], torch.get_rng_state()]
    drawn = torch.get_rng_state()
    found = [r for r in results if isinstance(r, torch.Tensor)]
    nodes = [(type(t.grad_fn), t.requires_grad) for t in found]
    return [*results, drawn, nodes, *derivatives(found, given)]


def derivatives(results: list[torch.Tensor], given: Any) -> list[Any]:
    """Of what was given; the backward itself is not under the audit."""
    wanted = [t for t in tree_leaves(given) if isinstance(t, torch.Tensor) and t.requires_grad]
    module = given[0] if isinstance(given[0], nn.Module) else nn.Module()
    wanted += [p for p in module.parameters() if p.requires_grad]
    ends = [r for r in results if r.grad_fn is not None]
    if not wanted or not ends:
        return []
    try:
        return list(torch.autograd.grad(ends, wanted, [torch.ones_like(e) for e in ends], allow_unused=True))
    except (RuntimeError, TypeError) as error:
        return [str(error).partition("\n")[0]]


def alike(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(same, one, other))


def changed_by(around: Around, setting: str, samples: Iterable[Sample]) -> list[str]:
    """The names of what gives something else inside `around`, and always the same without it."""
    names: list[str] = []
    for sample in samples:
        plain = outcome(sample, setting, contextlib.nullcontext)
        if alike(outcome(sample, setting, around), plain):
            continue
        if all(alike(outcome(sample, setting, contextlib.nullcontext), plain) for _ in range(TRIES)):
            names.append(sample.name)
    return sorted(set(names))


@pytest.mark.parametrize("setting", SETTINGS)
def test_functions(setting: str) -> None:
    live, looking = the_audit()
    assert changed_by(looking, setting, a_few_functions()) == []
    assert live.tracer.spent > 0 and live.tracer.complete


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_modules(setting: str, training: bool) -> None:
    live, looking = the_audit()
    assert changed_by(looking, setting, modules(training, 3)) == []
    assert live.tracer.spent > 0 and live.tracer.complete


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "setting"),
    [*((torch.float32, s) for s in SETTINGS), *((d, s) for d in OTHER_DTYPES for s in ("grad", "inference"))],
    ids=str,
)
def test_every_sample_of_every_function(dtype: torch.dtype, setting: str) -> None:
    _, looking = the_audit()
    assert changed_by(looking, setting, functions(dtype, None)) == []


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_every_sample_of_every_module(setting: str, training: bool) -> None:
    _, looking = the_audit()
    assert changed_by(looking, setting, modules(training, None)) == []


@pytest.mark.parametrize(
    ("setting", "name"),
    [("no_grad", "linalg.svdvals"), ("grad", "nn.functional.ctc_loss"), ("autocast", "linalg.pinv")],
)
def test_the_comparison_can_fail(setting: str, name: str) -> None:
    """A dispatch mode, as the audit once was, does change what torch computes."""
    samples = functions(torch.float32, 4, only=name)
    assert changed_by(lambda: OpTracer(Scope()), setting, samples) == [name]
