"""Losses with everything ignored, with excluded classes, and with probabilities of 0 and 1."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from stable_checks import (
    DTYPES,
    HALVES,
    INF,
    NAN,
    all_finite,
    assert_finite,
    assert_is_plain_where_finite,
    assert_near_float64,
    gradcheck,
    quick,
    row,
    value_and_gradients,
)
from torch import Tensor

from nanwatch import stable

TIGHT = {"rtol": 2e-6, "atol": 1e-6}


def logits(dtype: torch.dtype = torch.float32, *shape: int) -> Tensor:
    return torch.randn(shape or (4, 5), generator=torch.Generator().manual_seed(0)).mul(2).to(dtype)


LABELS = torch.tensor([1, -100, 4, 0])
NONE = torch.full((4,), -100)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy_with_every_label_ignored(dtype: torch.dtype) -> None:
    x = logits(dtype)
    assert not all_finite(lambda t: F.cross_entropy(t, NONE), x)
    value, (gradient,) = value_and_gradients(lambda t: stable.cross_entropy(t, NONE), x)
    assert value == 0 and (gradient == 0).all() and value.dtype == dtype


WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.0, 3.0])


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_is_the_plain_one(weight: Tensor | None, smoothing: float, reduction: str) -> None:
    settings = {"weight": weight, "label_smoothing": smoothing, "reduction": reduction}
    probabilities = torch.softmax(logits(torch.float32).flip(0), -1)
    image = torch.tensor([[[0, -100], [2, 4]]])
    for x, target in (
        (logits(), LABELS),
        (logits(), probabilities),
        (logits(torch.float32, 1, 5, 2, 2), image),
    ):
        assert_is_plain_where_finite(
            lambda t, y=target: stable.cross_entropy(t, y, **settings),
            lambda t, y=target: F.cross_entropy(t, y, **settings),
            x,
            **TIGHT,
        )


def test_cross_entropy_of_one_sample_and_of_classes_without_weight() -> None:
    x = logits()[0]
    assert torch.allclose(stable.cross_entropy(x, torch.tensor(2)), F.cross_entropy(x, torch.tensor(2)))
    assert stable.cross_entropy(x, torch.tensor(-100)) == 0
    only = torch.tensor([3, 3, 3, 3])
    assert not all_finite(lambda t: F.cross_entropy(t, only, WEIGHT), logits())
    value, (gradient,) = value_and_gradients(lambda t: stable.cross_entropy(t, only, WEIGHT), logits())
    assert value == 0 and (gradient == 0).all()
    assert stable.cross_entropy(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long)) == 0


@pytest.mark.parametrize("garbage", [NAN, INF, -INF])
def test_the_logits_of_an_ignored_label_have_no_influence(garbage: float) -> None:
    x = logits()
    clean_value, (clean_gradient,) = value_and_gradients(lambda t: stable.cross_entropy(t, LABELS), x)
    x[1] = garbage
    assert not all_finite(lambda t: F.cross_entropy(t, LABELS), x)
    value, (gradient,) = value_and_gradients(lambda t: stable.cross_entropy(t, LABELS), x)
    assert torch.equal(value, clean_value) and torch.equal(gradient, clean_gradient)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy_against_float64(dtype: torch.dtype) -> None:
    assert_near_float64(
        lambda t: stable.cross_entropy(t, LABELS), lambda t: F.cross_entropy(t, LABELS), logits(dtype)
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_bce_from_logits(reduction: str) -> None:
    x, y = row(-3.0, 0.5, 200.0, -200.0, 1.0), row(1.0, 0.3, 1.0, 0.0, 0.0)
    plain = lambda s, t: F.binary_cross_entropy_with_logits(s, t, reduction=reduction)  # noqa: E731
    block = lambda s, t: stable.bce_from_logits(s, t, reduction)  # noqa: E731
    assert_is_plain_where_finite(block, plain, x, y, **TIGHT)
    ends = row(INF, -INF, INF, -INF), row(1.0, 0.0, 0.0, 0.5)
    assert not all_finite(plain, *ends)
    assert_finite(block, *ends)
    assert stable.bce_from_logits(*ends, reduction="none").tolist() == [0.0, 0.0, 100.0, 50.0]
    assert stable.bce_from_logits(torch.zeros(0), torch.zeros(0)) == 0


def bce_by_hand(p: Tensor, y: Tensor) -> Tensor:
    return -(y * p.log() + (1 - y) * (1 - p).log())


@quick
@given(st.lists(st.tuples(st.floats(0, 1, width=32), st.floats(0, 1, width=32)), min_size=1))
def test_bce_from_probabilities(pairs: list[tuple[float, float]]) -> None:
    p, y = (
        torch.tensor([*side, *ends])
        for side, ends in zip(zip(*pairs, strict=True), ([0, 1], [1, 0]), strict=True)
    )
    block = lambda s, t: stable.bce_from_probabilities(s, t, "none")  # noqa: E731
    assert not all_finite(bce_by_hand, p, y)
    assert_finite(block, p, y)
    assert torch.allclose(block(p, y), F.binary_cross_entropy(p, y, reduction="none"), **TIGHT)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bce_from_probabilities_in_every_dtype(dtype: torch.dtype) -> None:
    p, y = row(0.25, 0.75, 0.5, dtype=dtype), row(0.0, 1.0, 0.5, dtype=dtype)
    assert_near_float64(
        lambda s, t: stable.bce_from_probabilities(s, t), lambda s, t: bce_by_hand(s, t).mean(), p, y
    )
    beyond = row(0.0, 1.0, -1e-3, 1.01, dtype=dtype)
    assert_finite(lambda s: stable.bce_from_probabilities(s, torch.ones(4, dtype=dtype)), beyond)
    with pytest.raises(RuntimeError):
        F.binary_cross_entropy(beyond.float(), torch.ones(4))


def kl_by_hand(p: Tensor, q: Tensor) -> Tensor:
    return (torch.softmax(p, -1) * (torch.log_softmax(p, -1) - torch.log_softmax(q, -1))).sum(-1)


def test_kl_from_logits_with_excluded_classes() -> None:
    p = torch.tensor([[1.0, -INF, 0.5], [0.1, 0.2, 0.3], [-INF] * 3, [0.3, 0.1, 0.2]])
    q = torch.tensor([[0.2, -INF, 0.1], [0.3, 0.1, 0.0], [0.1, 0.2, 0.3], [0.0, -INF, 0.4]])
    assert not all_finite(kl_by_hand, p, q)
    value, gradients = value_and_gradients(stable.kl_from_logits, p, q)
    assert value.isfinite().all() and all(g.isfinite().all() for g in gradients)
    kept = [0, 2]
    assert torch.allclose(value[0], kl_by_hand(p[0, kept], q[0, kept])) and value[2] == 0
    true, true_gradients = value_and_gradients(kl_by_hand, p[1:2], q[1:2])
    torch.testing.assert_close(value[1:2], true, **TIGHT)
    assert value[3] > 20, "a class that q excludes and p does not is expensive"
    assert len(true_gradients) == 2


def test_kl_from_logits_is_the_plain_one() -> None:
    p, q = logits(), logits().flip(0)
    assert_is_plain_where_finite(stable.kl_from_logits, kl_by_hand, p, q, **TIGHT)
    assert_is_plain_where_finite(
        stable.kl_from_probabilities,
        lambda a, b: (a * (a.log() - b.log())).sum(-1),
        torch.softmax(p, -1),
        torch.softmax(q, -1),
        **TIGHT,
    )


def test_kl_from_probabilities_with_zeros() -> None:
    p, q = torch.tensor([[0.0, 0.4, 0.6], [0.5, 0.5, 0.0]]), torch.tensor([[0.0, 0.5, 0.5], [0.0, 0.5, 0.5]])
    assert not all_finite(lambda a, b: (a * (a.log() - b.log())).sum(-1), p, q)
    value, gradients = value_and_gradients(stable.kl_from_probabilities, p, q)
    kept = slice(1, None)
    assert torch.allclose(value[0], F.kl_div(q[0, kept].log(), p[0, kept], reduction="sum"))
    assert value[1] > 20 and all(g.isfinite().all() for g in gradients) and gradients[0][0, 0] == 0


@pytest.mark.parametrize("dtype", HALVES)
def test_kl_and_entropy_in_half(dtype: torch.dtype) -> None:
    p, q = logits(dtype), logits(dtype).flip(0)
    assert_near_float64(stable.kl_from_logits, kl_by_hand, p, q)
    assert_near_float64(stable.entropy_from_logits, lambda t: -(t.softmax(-1) * t.log_softmax(-1)).sum(-1), p)
    a, b = (torch.softmax(t.float(), -1).to(dtype) for t in (p, q))
    assert_near_float64(stable.kl_from_probabilities, lambda s, t: (s * (s.log() - t.log())).sum(-1), a, b)
    assert_near_float64(stable.entropy_from_probabilities, lambda s: -(s * s.log()).sum(-1), a)


def test_entropy_with_excluded_classes() -> None:
    x = torch.tensor([[1.0, -INF, 2.0], [-INF] * 3, [0.0, 0.0, 0.0], [0.0, -INF, -INF]])
    plain = lambda t: -(t.softmax(-1) * t.log_softmax(-1)).sum(-1)  # noqa: E731
    assert not all_finite(plain, x)
    assert_is_plain_where_finite(stable.entropy_from_logits, plain, x, **TIGHT)
    value = stable.entropy_from_logits(x)
    assert torch.allclose(value[0], plain(x[0, [0, 2]])) and value[1] == 0 and value[3] == 0
    p = torch.tensor([[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]])
    assert not all_finite(lambda t: torch.special.entr(t).sum(-1), p)
    assert_is_plain_where_finite(
        stable.entropy_from_probabilities, lambda t: torch.special.entr(t).sum(-1), p, **TIGHT
    )


@pytest.mark.parametrize(
    "block",
    [
        lambda x: stable.cross_entropy(x, torch.zeros(2, dtype=torch.long), reduction="none"),
        lambda x: stable.bce_from_logits(x, torch.ones_like(x), "none").sum(-1),
        lambda x: stable.bce_from_probabilities(x, torch.ones_like(x), "none").sum(-1),
        lambda x: stable.kl_from_logits(x, torch.ones_like(x)),
        lambda x: stable.kl_from_probabilities(x, torch.ones_like(x)),
        stable.entropy_from_logits,
        stable.entropy_from_probabilities,
    ],
)
def test_a_nan_that_comes_in_goes_out(block) -> None:
    assert block(torch.tensor([[NAN, 0.5], [0.5, 0.5]])).isnan().tolist() == [True, False]


def test_gradients_by_differences() -> None:
    x, y = logits()[:2], logits()[2:]
    gradcheck(lambda t: stable.cross_entropy(t, LABELS[:2], WEIGHT, label_smoothing=0.1), x)
    gradcheck(stable.bce_from_logits, x, torch.rand_like(x))
    gradcheck(stable.bce_from_probabilities, x.sigmoid(), y.sigmoid())
    gradcheck(stable.kl_from_logits, x, y)
    gradcheck(stable.kl_from_probabilities, x.softmax(-1), y.softmax(-1))
    gradcheck(stable.entropy_from_logits, x)
    gradcheck(stable.entropy_from_probabilities, x.softmax(-1))
