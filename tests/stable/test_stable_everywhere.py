"""Every block at its failing point, in every dtype and way a program may run it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from stable_checks import DTYPES, INF, all_finite, value_and_gradients
from torch import Tensor

import nanwatch
from nanwatch import stable

MASK = torch.tensor([[True, True, False], [False, False, False]])
LABELS = torch.full((2,), -100)

Block = tuple[Callable[..., Tensor], list[list[list[float]]]]

ROWS = [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]
UNIT = [[0.2, 1.0, 0.5], [0.0, -1.0, 0.0]]
SHARES = [[0.2, 0.3, 0.5], [0.0, 1.0, 0.0]]
LOGITS = [[1.0, -INF, 0.5], [-INF, -INF, -INF]]

BLOCKS: dict[str, Block] = {
    "masked_softmax": (lambda x: stable.masked_softmax(x, MASK), [ROWS]),
    "masked_log_softmax": (lambda x: stable.masked_log_softmax(x, MASK), [ROWS]),
    "logsumexp": (lambda x: stable.logsumexp(x, mask=MASK, empty=-9.0), [ROWS]),
    "attention": (lambda q, k, v: stable.attention(q, k, v, MASK[:, :2]), [ROWS, ROWS, ROWS]),
    "layer_norm": (lambda x: stable.layer_norm(x, (3,), eps=0.0), [ROWS]),
    "rms_norm": (lambda x: stable.rms_norm(x, (3,), eps=0.0), [ROWS]),
    "masked_mean": (lambda x: stable.masked_mean(x, MASK, -1), [ROWS]),
    "masked_loss": (lambda x: stable.masked_loss(x, MASK & False), [ROWS]),
    "cross_entropy": (lambda x: stable.cross_entropy(x, LABELS), [ROWS]),
    "bce_from_logits": (stable.bce_from_logits, [LOGITS, SHARES]),
    "bce_from_probabilities": (stable.bce_from_probabilities, [SHARES, SHARES[::-1]]),
    "kl_from_logits": (stable.kl_from_logits, [LOGITS, LOGITS[::-1]]),
    "kl_from_probabilities": (stable.kl_from_probabilities, [SHARES, SHARES[::-1]]),
    "entropy_from_logits": (stable.entropy_from_logits, [LOGITS]),
    "entropy_from_probabilities": (stable.entropy_from_probabilities, [SHARES]),
    "log": (stable.log, [ROWS]),
    "sqrt": (stable.sqrt, [ROWS]),
    "divide": (stable.divide, [ROWS, ROWS]),
    "pow": (lambda x: stable.pow(x, -0.5), [ROWS]),
    "pow_learned": (stable.pow, [UNIT, UNIT]),
    "acos": (stable.acos, [UNIT]),
    "asin": (stable.asin, [UNIT]),
    "atan2": (stable.atan2, [ROWS, ROWS]),
    "log1mexp": (lambda x: stable.log1mexp(-x), [ROWS]),
    "log_sigmoid": (stable.log_sigmoid, [ROWS]),
    "exp": (lambda x: stable.exp(x * 400), [ROWS]),
    "ratio": (stable.ratio, [LOGITS, LOGITS[::-1]]),
    "norm": (stable.norm, [ROWS]),
    "normalize": (stable.normalize, [ROWS]),
    "std": (lambda x: stable.std(x, -1), [ROWS]),
    "cosine_similarity": (stable.cosine_similarity, [ROWS, UNIT]),
    "modulate": (lambda x, s, c: stable.modulate(x, s, c * 3e4, limit=5.0), [ROWS, ROWS, ROWS]),
    "gated": (lambda x, s, c: stable.gated(x, s, c * 3e4, limit=5.0), [ROWS, ROWS, ROWS]),
    "snr": (stable.snr, [SHARES]),
    "log_snr": (stable.log_snr, [SHARES]),
}


def tensors(name: str, dtype: torch.dtype = torch.float32) -> tuple[Callable[..., Tensor], list[Tensor]]:
    block, values = BLOCKS[name]
    return block, [torch.tensor(v, dtype=dtype) for v in values]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BLOCKS)
def test_finite_in_the_dtype_that_came_in(name: str, dtype: torch.dtype) -> None:
    block, inputs = tensors(name, dtype)
    value, gradients = value_and_gradients(block, *inputs)
    assert value.dtype == dtype and value.isfinite().all()
    assert all(g.isfinite().all() for g in gradients)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", BLOCKS)
def test_no_nan_inside_the_backward_pass_either(name: str) -> None:
    """A NaN that a mask discards would still stop a program under detect_anomaly."""
    block, inputs = tensors(name)
    with torch.autograd.detect_anomaly():
        assert all_finite(block, *inputs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", sorted({*BLOCKS} - {"attention"}))
def test_autocast_changes_nothing(name: str, dtype: torch.dtype) -> None:
    for given_dtype in (torch.float32, dtype):
        block, inputs = tensors(name, given_dtype)
        expected = block(*inputs)
        with torch.autocast("cpu", dtype):
            assert torch.equal(block(*inputs), expected)
            assert all_finite(block, *inputs)


def test_attention_runs_in_the_dtype_of_autocast() -> None:
    block, inputs = tensors("attention")
    with torch.autocast("cpu", torch.bfloat16):
        value, gradients = value_and_gradients(block, *inputs)
    assert value.dtype == torch.bfloat16 and value.isfinite().all()
    assert all(g.dtype == torch.float32 and g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("name", BLOCKS)
def test_without_gradient_the_same_value(name: str) -> None:
    block, inputs = tensors(name)
    expected, _ = value_and_gradients(block, *inputs)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(block(*inputs), expected)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize("name", BLOCKS)
def test_compiled_whole(name: str) -> None:
    block, inputs = tensors(name)
    torch._dynamo.reset()
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    value, gradients = value_and_gradients(compiled, *inputs)
    expected, expected_gradients = value_and_gradients(block, *inputs)
    for mine, other in zip([value, *gradients], [expected, *expected_gradients], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-6)


SINGLE = {
    "masked_softmax": lambda x: stable.masked_softmax(x, x > 0),
    "masked_log_softmax": lambda x: stable.masked_log_softmax(x, x > 0),
    "masked_mean": lambda x: stable.masked_mean(x, x > 0, 0),
    "layer_norm": lambda x: stable.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: stable.rms_norm(x, x.shape[-1:]),
    "entropy_from_logits": stable.entropy_from_logits,
    "normalize": stable.normalize,
    "norm": stable.norm,
    "log": stable.log,
    "sqrt": stable.sqrt,
    "exp": stable.exp,
    "acos": stable.acos,
    "log1mexp": stable.log1mexp,
}


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
@pytest.mark.parametrize("name", SINGLE)
def test_tensors_of_no_size(name: str, shape: tuple[int, ...]) -> None:
    value, (gradient,) = value_and_gradients(SINGLE[name], torch.zeros(shape))
    assert value.isfinite().all() and gradient.shape == shape


@pytest.mark.parametrize(
    "name", ["norm", "normalize", "log", "sqrt", "masked_softmax", "layer_norm", "rms_norm"]
)
def test_inputs_are_left_as_they_were(name: str) -> None:
    x = torch.tensor([[0.0, 0.0], [3e30, 1.0]])
    before = x.clone()
    SINGLE[name](x)
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    "name", ["log", "sqrt", "norm", "normalize", "masked_softmax", "entropy_from_logits"]
)
def test_per_sample_gradients(name: str) -> None:
    """torch.func goes through: no block hides behind a hand-written backward."""
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    function = SINGLE[name]
    each = torch.func.vmap(torch.func.grad(lambda v: function(v).sum()))(x)
    _, tangent = torch.func.jvp(function, (x,), (torch.ones_like(x),))
    assert each.isfinite().all() and tangent.isfinite().all()


def test_the_list_of_public_names_is_whole() -> None:
    assert stable.__all__ == sorted(stable.__all__)
    assert all(getattr(stable, name) is not None for name in stable.__all__)
    assert {*BLOCKS} - {"pow_learned"} <= {*stable.__all__}


def test_imported_only_when_asked_for() -> None:
    code = (
        "import sys, nanwatch; before = 'nanwatch.stable' in sys.modules; nanwatch.stable.log; print(before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
    assert nanwatch.stable is stable
