"""Bad arguments: one sentence that says where, what value, what was expected, what to write."""

from __future__ import annotations

import pytest
import torch

from nanwatch import stable

X, LONG = torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.long)
MASK = torch.ones(2, 3, dtype=torch.bool)


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANWATCH_LANG", "en")


WRONG_MASK = (
    "the mask is torch.float32; a bool tensor was expected, True where a value takes part. Write mask.bool()"
)
CASES = {
    "softmax: float mask": (lambda: stable.masked_softmax(X, X), f"masked_softmax: {WRONG_MASK}"),
    "log_softmax: float mask": (lambda: stable.masked_log_softmax(X, X), f"masked_log_softmax: {WRONG_MASK}"),
    "logsumexp: float mask": (lambda: stable.logsumexp(X, mask=X), f"logsumexp: {WRONG_MASK}"),
    "mean: float mask": (lambda: stable.masked_mean(X, X), f"masked_mean: {WRONG_MASK}"),
    "loss: float mask": (lambda: stable.masked_loss(X, X), f"masked_loss: {WRONG_MASK}"),
    "mean: list for a mask": (lambda: stable.masked_mean(X, [True]), "the mask is a list; a bool tensor"),
    "softmax: shape": (
        lambda: stable.masked_softmax(X, MASK[:, :2]),
        "mask has shape (2, 2), which does not broadcast to (2, 3). Put the missing dimensions in, for "
        "example mask.unsqueeze(1)",
    ),
    "mean: mask larger than x": (
        lambda: stable.masked_mean(X[0], MASK),
        "mask has shape (2, 3), which does not broadcast to (3,)",
    ),
    "attention: int mask": (
        lambda: stable.attention(X, X, X, LONG),
        "attention: the mask is torch.int64; expected a bool tensor (True where a key may be seen) or a",
    ),
    "attention: mask shape": (
        lambda: stable.attention(X, X, X, MASK),
        "mask has shape (2, 3), which does not",
    ),
    "attention: shapes": (
        lambda: stable.attention(X, X.T, X),
        "query (2, 3), key (3, 2), value (2, 3) do not belong together; expected (..., L, E)",
    ),
    "attention: dropout": (
        lambda: stable.attention(X, X, X, dropout=1.5),
        "attention: dropout is 1.5; expected 0 <= dropout <= 1, for example dropout=0.1",
    ),
    "log: integers": (
        lambda: stable.log(LONG),
        "log: x is torch.int64; a tensor of floating dtype was expected. Convert it first: x.float()",
    ),
    "sqrt: a number": (lambda: stable.sqrt(2.0), "sqrt: x is a float; a tensor of floating dtype"),
    "log: floor": (
        lambda: stable.log(X, floor=0.0),
        "floor is 0.0; expected 0 < floor < inf, for example floor=1e-06",
    ),
    "divide: floor": (lambda: stable.divide(X, X, floor=-1.0), "floor is -1.0; expected 0 <= floor < inf"),
    "exp: limit": (lambda: stable.exp(X, limit=float("nan")), "exp: limit is nan; expected limit < inf"),
    "layer_norm: eps": (
        lambda: stable.layer_norm(X, (3,), eps=-1e-5),
        "layer_norm: eps is -1e-05; expected 0 <= eps",
    ),
    "rms_norm: shape": (
        lambda: stable.rms_norm(X, (2,)),
        "rms_norm: x has shape (2, 3), which does not end in normalized_shape=(2,). Give the last dimensions",
    ),
    "loss: reduction": (
        lambda: stable.masked_loss(X, MASK, "none"),
        "masked_loss: reduction is 'none'; expected one of: mean, sum",
    ),
    "cross_entropy: reduction": (
        lambda: stable.cross_entropy(X, LONG[:, 0], reduction="avg"),
        "reduction is 'avg'; expected one of: mean, sum, none",
    ),
    "bce: target": (lambda: stable.bce_from_logits(X, X[:, :2]), "target has shape (2, 2), which does not"),
    "modulate: scale": (
        lambda: stable.modulate(torch.zeros(2, 5, 3), X[:, None], X),
        "modulate: scale has shape (2, 3), which does not broadcast to (2, 5, 3). Put the missing dimensions "
        "in, for example scale.unsqueeze(1)",
    ),
    "modulate: limit": (
        lambda: stable.modulate(X, X, X, limit=0.0),
        "limit is 0.0; expected 0 < limit < inf",
    ),
    "sample: temperature": (
        lambda: stable.sample(logits=X, temperature=-0.5),
        "sample: temperature is -0.5; expected 0 <= temperature < inf, for example temperature=0.7",
    ),
    "sample: top_k": (lambda: stable.sample(logits=X, top_k=0), "top_k is 0; expected 1 <= top_k < inf"),
    "sample: top_p": (lambda: stable.sample(logits=X, top_p=1.5), "top_p is 1.5; expected 0 < top_p <= 1"),
    "sample: both": (
        lambda: stable.sample(X, logits=X),
        "2 of probabilities and logits were given; exactly one",
    ),
    "sample: neither": (lambda: stable.sample(), "0 of probabilities and logits were given; exactly one"),
    "sample: nothing to draw": (
        lambda: stable.sample(X[:, :0]),
        "probabilities has shape (2, 0); expected (..., cat",
    ),
    "schedule: steps": (
        lambda: stable.linear_schedule(0),
        "linear_betas: steps is 0; expected 1 <= steps < inf",
    ),
    "schedule: betas": (
        lambda: stable.alphas_cumprod(torch.tensor([0.1, 1.5])),
        "betas.max() is 1.5; expected betas.max() <= 1",
    ),
    "schedule: nan": (lambda: stable.alphas_cumprod(torch.tensor([0.1, float("nan")])), "betas.min() is nan"),
    "schedule: predicts": (
        lambda: stable.cosine_schedule(5).min_snr_weight(torch.tensor([1]), predicts="x0"),
        "predicts is 'x0'; expected one of: noise, clean, velocity",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_arguments(case: str) -> None:
    call, expected = CASES[case]
    with pytest.raises(ValueError) as raised:
        call()
    assert str(raised.value).startswith("nanwatch.stable.") and expected in str(raised.value)


def test_in_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANWATCH_LANG", "zh")
    monkeypatch.setattr("sys.stderr", None)
    with pytest.raises(ValueError, match="这里需要 bool tensor"):
        stable.masked_mean(X, X)
