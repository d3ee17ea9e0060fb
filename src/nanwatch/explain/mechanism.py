"""What the birth op itself did with its operands, value by value. Not yet why they were what they were."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nanwatch.explain.birth import BirthOp

DIVIDE_BY_ZERO, LOG_OF_ZERO, INVALID_DOMAIN = "divide-by-zero", "log-of-zero", "invalid-domain"
OVERFLOW, INF_ARITHMETIC, MASKED_ROW = "overflow", "inf-arithmetic", "masked-row"
EMPTY, UNKNOWN = "empty", "unknown"

LOGS = (
    "log",
    "log2",
    "log10",
    "log1p",
    "xlogy",
    "special_xlog1py",
    "logit",
    "special_logit",
    "log_sigmoid_forward",
)
DIVISIONS = {
    "div": "other",
    "true_divide": "other",
    "divide": "other",
    "remainder": "other",
    "fmod": "other",
    "reciprocal": "self",
    "rsqrt": "self",
    "addcdiv": "tensor2",
}
WITHIN_ONE = ("acos", "asin", "atanh", "erfinv", "special_erfinv")
SOFTMAXES = (
    "_softmax",
    "_log_softmax",
    "softmax",
    "log_softmax",
    "_safe_softmax",
    "logsumexp",
    "_logcumsumexp",
)
REDUCTIONS = ("mean", "nanmean", "var", "std", "var_mean", "std_mean", "amax", "median")


@dataclass(frozen=True)
class Mechanism:
    kind: str
    operand: str = ""
    """The name of the operand that did it, in the op's schema."""
    value: float | None = None
    """What it was, at the first bad place."""
    share: float = 1.0
    """Of the bad places: at how many it explains the output."""


def mechanism_of(birth: BirthOp) -> Mechanism:
    for look in (_division, _logarithm, _domain, _softmax, _reduction, _infinities, _overflow):
        found = look(birth)
        if found is not None and found.share > 0:
            return found
    return Mechanism(UNKNOWN)


def _at(birth: BirthOp, operand: str, kind: str, test: str) -> Mechanism | None:
    """`kind` when the operand fails the test at some of the bad places."""
    values = birth.at_bad(operand)
    if values is None or not values.numel():
        return None
    guilty = {
        "zero": values == 0,
        "negative": values < 0,
        "beyond one": values.abs() >= 1,
        "minus one": values == -1,
        "below minus one": values < -1,
        "one": values == 1,
    }[test]
    if not bool(guilty.any()):
        return None
    return Mechanism(kind, operand, float(values[guilty][0]), float(guilty.double().mean()))


def _division(birth: BirthOp) -> Mechanism | None:
    if birth.name in DIVISIONS:
        return _at(birth, DIVISIONS[birth.name], DIVIDE_BY_ZERO, "zero")
    if birth.name == "pow":
        exponent = birth.at_bad("exponent")
        if exponent is not None and bool((exponent < 0).any()):
            return _at(birth, "self", DIVIDE_BY_ZERO, "zero")
    return None


def _logarithm(birth: BirthOp) -> Mechanism | None:
    if birth.name not in LOGS:
        return None
    operand = "other" if birth.name in ("xlogy", "special_xlog1py") else "self"
    if birth.name in ("log1p", "special_xlog1py"):
        return _at(birth, operand, LOG_OF_ZERO, "minus one") or _at(
            birth, operand, INVALID_DOMAIN, "below minus one"
        )
    found = _at(birth, operand, LOG_OF_ZERO, "zero")
    if found is None and "logit" in birth.name:
        found = _at(birth, operand, LOG_OF_ZERO, "one")
    return found or _at(birth, operand, INVALID_DOMAIN, "negative")


def _domain(birth: BirthOp) -> Mechanism | None:
    if birth.name in ("sqrt", "rsqrt"):
        return _at(birth, "self", INVALID_DOMAIN, "negative")
    if birth.name in WITHIN_ONE:
        return _at(birth, "self", INVALID_DOMAIN, "beyond one")
    if birth.name == "acosh":
        values = birth.at_bad("self")
        if values is not None and bool((values < 1).any()):
            return Mechanism(INVALID_DOMAIN, "self", float(values[values < 1][0]))
    if birth.name == "pow":
        return _at(birth, "self", INVALID_DOMAIN, "negative")
    if birth.name in ("lgamma", "digamma"):
        values = birth.at_bad("self")
        if values is not None and bool((values <= 0).any()):
            return Mechanism(INVALID_DOMAIN, "self", float(values[values <= 0][0]))
    return None


def _softmax(birth: BirthOp) -> Mechanism | None:
    scores = birth.tensor("self")
    if birth.name not in SOFTMAXES or scores is None or scores.dim() == 0:
        return None
    dim = birth.arguments.get("dim", -1)
    dims = [dim] if isinstance(dim, int) else list(dim or range(scores.dim()))
    masked = scores == float("-inf")
    for each in dims:
        masked = masked.all(dim=each, keepdim=True)
    if bool(masked.any()):
        return Mechanism(MASKED_ROW, "self", float("-inf"))
    if bool((scores == float("inf")).any()):
        return Mechanism(INF_ARITHMETIC, "self", float("inf"))
    return None


def _reduction(birth: BirthOp) -> Mechanism | None:
    values = birth.tensor("self")
    if values is None:
        return None
    if birth.name in REDUCTIONS and birth.output is not None and birth.output.numel():
        count = values.numel() // max(1, birth.output.numel())
        if values.numel() == 0 or count == 0:
            return Mechanism(EMPTY, "self", 0.0)
        one = birth.name.startswith(("var", "std")) and count == 1
        return Mechanism(DIVIDE_BY_ZERO, "correction", 0.0) if one else None
    return None


def _infinities(birth: BirthOp) -> Mechanism | None:
    """An infinity that was there before, and NaN out of it: inf - inf, 0 * inf, inf / inf."""
    if not birth.op.turns_inf_into_nan:
        return None
    guilty = next((o for o in birth.op.bad_inputs), None)
    name = guilty.numbers.name if guilty is not None and guilty.numbers.name else ""
    return Mechanism(INF_ARITHMETIC, name, float("inf"))


def _overflow(birth: BirthOp) -> Mechanism | None:
    """Finite operands, and a true value that only a wider dtype can hold, or one beyond any."""
    if not birth.op.makes_inf and not birth.op.makes_nan:
        return None
    if birth.wide:
        return Mechanism(OVERFLOW, *_largest(birth))
    grows = birth.name in (
        "exp",
        "expm1",
        "exp2",
        "sinh",
        "cosh",
        "pow",
        "mul",
        "add",
        "sum",
        "prod",
        "cumprod",
        "mm",
        "addmm",
        "bmm",
    )
    only_inf = birth.output is not None and not bool(torch.isnan(birth.output).any())
    return Mechanism(OVERFLOW, *_largest(birth)) if grows and only_inf else None


def _largest(birth: BirthOp) -> tuple[str, float | None]:
    """The operand with the largest value."""
    sizes = {
        n: float(t.detach().double().abs().max()) if not t.is_complex() else 0.0
        for n, t in birth.tensors.items()
        if t.numel() and (t.is_floating_point())
    }
    if not sizes:
        return "", None
    name = max(sizes, key=lambda n: sizes[n])
    return name, sizes[name]
