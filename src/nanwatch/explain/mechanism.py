"""What the birth op itself did with its operands, value by value. Not yet why they were what they were."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from nanwatch.explain.birth import BirthOp
from nanwatch.replay.op_facts import CASTS

DIVIDE_BY_ZERO, LOG_OF_ZERO, INVALID_DOMAIN = "divide-by-zero", "log-of-zero", "invalid-domain"
OVERFLOW, INF_ARITHMETIC, MASKED_ROW = "overflow", "inf-arithmetic", "masked-row"
EMPTY, INHERITED, UNKNOWN = "empty", "inherited", "unknown"
OVERFLOWS = (OVERFLOW, INF_ARITHMETIC, UNKNOWN)
"""What a value that has grown too far may show itself as."""

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
    "special_log_ndtr",
)
DETERMINANTS = ("_linalg_slogdet", "linalg_slogdet", "logdet")
DIVISIONS = {
    "div": "other",
    "true_divide": "other",
    "divide": "other",
    "floor_divide": "other",
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
    "_masked_softmax",
    "logsumexp",
    "_logcumsumexp",
)
MAXIMA = ("amax", "max")
REDUCTIONS = ("mean", "nanmean", "var", "std", "var_mean", "std_mean", "amax", "median")
NORMS = (
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "cudnn_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "_batch_norm_with_update",
    "_fused_rms_norm",
)
"""Ops that divide by a deviation, with an eps under the root."""

ATTENTIONS = ("attention", "_transformer_encoder_layer_fwd", "_native_multi_head")
MASKS = ("attn_mask", "mask", "attn_bias", "src_mask")
GROWS = frozenset(
    "exp expm1 exp2 sinh cosh pow square mul add sub sum nansum mean prod cumprod cumsum mm addmm bmm "
    "baddbmm mv dot vdot matmul linear convolution linalg_vector_norm norm addcmul addmv addr ldexp "
    "mse_loss var std lgamma index_add scatter_add lerp special_i0 i0 kron tan div addcdiv reciprocal "
    "rsqrt _euclidean_dist "
    "_cdist_forward logcumsumexp".split()
)
"""Ops whose true value on finite operands can lie beyond every dtype."""

CONSTANTS = ("other", "value", "s", "fill_value", "alpha")
"""What ops call a plain number that takes part in the arithmetic."""


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
    for look in (
        _division,
        _logarithm,
        _determinant,
        _domain,
        _softmax,
        _attention,
        _shifted_row,
        _reduction,
        _norm,
        _infinities,
        _overflow,
    ):
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
        "below one": values < 1,
        "not positive": values <= 0,
        "minus one": values == -1,
        "below minus one": values < -1,
        "one": values == 1,
        "above one": values > 1,
    }[test]
    return _where(guilty, values, kind, operand)


def _where(guilty: torch.Tensor, values: torch.Tensor, kind: str, operand: str) -> Mechanism | None:
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
        found = _at(birth, operand, LOG_OF_ZERO, "one") or _at(birth, operand, INVALID_DOMAIN, "above one")
    if birth.name in ("log_sigmoid_forward", "special_log_ndtr"):
        return None
    return found or _at(birth, operand, INVALID_DOMAIN, "negative")


def _determinant(birth: BirthOp) -> Mechanism | None:
    """The logarithm of a determinant that is exactly zero: of a singular matrix."""
    operand = next((name for name in ("A", "self") if birth.tensor(name) is not None), "")
    if birth.name not in DETERMINANTS or birth.op.bad_inputs or birth.output is None or not operand:
        return None
    zero = birth.output == float("-inf")
    return Mechanism(LOG_OF_ZERO, operand, 0.0) if bool(zero.any()) else None


def _domain(birth: BirthOp) -> Mechanism | None:
    if birth.name in ("sqrt", "rsqrt"):
        return _at(birth, "self", INVALID_DOMAIN, "negative")
    if birth.name in WITHIN_ONE:
        return _at(birth, "self", INVALID_DOMAIN, "beyond one")
    if birth.name == "acosh":
        return _at(birth, "self", INVALID_DOMAIN, "below one")
    if birth.name == "pow":
        return _fractional_power(birth)
    if birth.name in ("lgamma", "digamma", "polygamma", "mvlgamma"):
        return _at(birth, "self", INVALID_DOMAIN, "not positive")
    return None


def _fractional_power(birth: BirthOp) -> Mechanism | None:
    """A negative number to a power that is not whole; whole powers of it are defined, and may overflow."""
    base, exponent = birth.at_bad("self"), birth.at_bad("exponent")
    if base is None or exponent is None or base.numel() != exponent.numel():
        return None
    return _where((base < 0) & (exponent != exponent.floor()), base, INVALID_DOMAIN, "self")


def _softmax(birth: BirthOp) -> Mechanism | None:
    """A row that is masked everywhere, or one with +inf in it. The largest of a row that is masked everywhere
    is -inf, too."""
    scores = birth.tensor("self")
    if birth.name not in SOFTMAXES + MAXIMA or scores is None or scores.dim() == 0:
        return None
    dims = dims_of(birth.arguments.get("dim"), scores.dim())
    mask = birth.tensor("mask")
    if mask is not None and mask.dtype is torch.bool and bool(mask.all(dim=-1).any()):
        return Mechanism(MASKED_ROW, "mask", float("-inf"))
    if bool(rows_all(scores == float("-inf"), dims).any()):
        return Mechanism(MASKED_ROW, "self", float("-inf"))
    if birth.name in SOFTMAXES and bool((scores == float("inf")).any()):
        return Mechanism(INF_ARITHMETIC, "self", float("inf"))
    return None


def dims_of(dim: Any, rank: int) -> list[int]:
    """The dims that an op works along: an int, a list, or all of them when none is named."""
    if isinstance(dim, int) and not isinstance(dim, bool):
        return [dim]
    if isinstance(dim, (list, tuple)) and dim:
        return [int(d) for d in dim]
    return list(range(rank))


def rows_all(flags: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """Which rows along these dims are flagged everywhere; the dims are kept, with size 1."""
    for dim in dims:
        flags = flags.all(dim=dim, keepdim=True)
    return flags


def _attention(birth: BirthOp) -> Mechanism | None:
    """Fused attention, forward or backward: a query that may look at nothing, or a mask with +inf in it."""
    if not any(word in birth.name for word in ATTENTIONS):
        return None
    for name in MASKS:
        mask = birth.tensor(name)
        if mask is None or mask.dim() == 0:
            continue
        if mask.is_floating_point():
            if bool((mask == float("inf")).any()):
                return Mechanism(INF_ARITHMETIC, name, float("inf"))
            hidden = mask == float("-inf")
        else:  # the fused layers of torch.nn take True for "not to be looked at", attention itself for "may"
            hidden = mask.bool() if birth.name.startswith(ATTENTIONS[1:]) else ~mask.bool()
        if bool(hidden.all(dim=-1).any()):
            return Mechanism(MASKED_ROW, name, float("-inf"))
    return None


def _shifted_row(birth: BirthOp) -> Mechanism | None:
    """A softmax or logsumexp by hand, or the derivative of one: from each score its row's greatest value, or
    its sum, is taken, and the whole row is -inf."""
    scores, shift = birth.tensor("self"), birth.tensor("other")
    if birth.name != "sub" or scores is None or shift is None or scores.dim() == 0:
        return None
    if not scores.is_floating_point() or not bool((shift == float("-inf")).any()):
        return None
    sizes = [1] * (scores.dim() - shift.dim()) + list(shift.shape)
    along = [d for d, n in enumerate(scores.shape) if sizes[d] == 1 and n > 1]
    if len(sizes) != scores.dim() or not along:
        return None
    masked = rows_all(scores == float("-inf"), along) & (shift == float("-inf"))
    return Mechanism(MASKED_ROW, "self", float("-inf")) if bool(masked.any()) else None


def _reduction(birth: BirthOp) -> Mechanism | None:
    values = birth.tensor("self")
    if values is None or birth.name not in REDUCTIONS or birth.output is None or not birth.output.numel():
        return None
    count = values.numel() // max(1, birth.output.numel())
    if values.numel() == 0 or count == 0:
        return Mechanism(EMPTY, "self", 0.0)
    if not birth.name.startswith(("var", "std")):
        return None
    correction = birth.number("correction")
    lost = 1.0 if correction is None and birth.arguments.get("unbiased") is not False else correction or 0.0
    return Mechanism(DIVIDE_BY_ZERO, "correction", 0.0) if count <= lost else None


def _norm(birth: BirthOp) -> Mechanism | None:
    """A deviation of zero and no eps; or a running variance that is negative."""
    if birth.name not in NORMS:
        return None
    eps = birth.number("eps") or 0.0
    variance = birth.tensor("running_var")
    if variance is not None and birth.arguments.get("training") is not True and variance.numel():
        least = float(variance.min())
        if least + eps <= 0:
            return Mechanism(INVALID_DOMAIN if least + eps < 0 else DIVIDE_BY_ZERO, "running_var", least)
    given = birth.tensor("input")
    if eps == 0 and given is not None and birth.wide is False and bool(torch.isfinite(given).all()):
        return Mechanism(DIVIDE_BY_ZERO, "eps", 0.0)
    return None


def _infinities(birth: BirthOp) -> Mechanism | None:
    """An infinity that was there before, and NaN out of it: inf - inf, 0 * inf, inf / inf. A NaN that was
    there before is only handed on."""
    if birth.op.fresh is not None:
        return _infinity_beside_others(birth)
    bad = [o for o in birth.op.bad_inputs if o.numbers.name]
    if not bad:
        return _infinite_number(birth)
    worst = next((o for o in bad if o.numbers.nan), None)
    if worst is not None:
        return Mechanism(INHERITED, worst.numbers.name or "", math.nan)
    name = bad[0].numbers.name or ""
    sign = float("inf") if bad[0].numbers.posinf else float("-inf")
    if not birth.op.turns_inf_into_nan:
        return Mechanism(INHERITED, name, sign)
    values = birth.at_bad(name)
    infinite = values[values.isinf()] if values is not None else None
    if infinite is not None and infinite.numel():
        sign = float(infinite[0])
    return Mechanism(INF_ARITHMETIC, name, sign)


def _infinity_beside_others(birth: BirthOp) -> Mechanism | None:
    """The same of an op that also hands on other bad values: only what met where the NaN was born counts."""
    for operand in birth.op.bad_inputs if birth.op.turns_inf_into_nan else ():
        name = operand.numbers.name or ""
        values = birth.at_bad(name)
        if values is not None and bool(values.isinf().any()):
            return Mechanism(INF_ARITHMETIC, name, float(values[values.isinf()][0]))
    return None


def _infinite_number(birth: BirthOp) -> Mechanism | None:
    """The infinity is no tensor but a number that the program wrote there: `(1 - mask) * float("-inf")`."""
    if not birth.op.makes_nan:
        return None
    for name in CONSTANTS:
        number = birth.number(name)
        if number is not None and math.isinf(number):
            return Mechanism(INF_ARITHMETIC, name, number)
    return None


def _overflow(birth: BirthOp) -> Mechanism | None:
    """Finite operands, and a true value that only a wider dtype can hold, or one beyond any."""
    if not birth.op.makes_inf and not birth.op.makes_nan:
        return None
    if birth.wide:
        return Mechanism(OVERFLOW, *_largest(birth))
    made = None if birth.output is None or birth.bad is None else birth.output[birth.bad]
    only_inf = made is not None and not bool(torch.isnan(made).any())
    if birth.name in GROWS and only_inf and birth.op.makes_inf:
        return Mechanism(OVERFLOW, *_largest(birth))
    return None


def _largest(birth: BirthOp) -> tuple[str, float | None]:
    """The operand that takes the result furthest: the one with the largest value where the output is bad. A
    divisor counts by how small it is."""
    divisor = DIVISIONS.get(birth.name, "")
    sizes: dict[str, tuple[float, float]] = {}
    for name in (*birth.tensors, *(c for c in CONSTANTS if c not in birth.tensors)):
        values = _values(birth, name)
        if values is None or not values.numel():
            continue
        if name == divisor:
            value = float(values[values.abs().argmin()])
            sizes[name] = (1 / max(abs(value), 1e-300), value)
        else:
            value = float(values[values.abs().argmax()])
            sizes[name] = (abs(value), value)
    if not sizes:
        return "", None
    name = max(sizes, key=lambda n: sizes[n][0])
    return name, sizes[name][1]


def _values(birth: BirthOp, name: str) -> torch.Tensor | None:
    """Of an operand: its values where the output is bad, or all of them, flat and as float64."""
    tensor = birth.tensors.get(name)
    if tensor is None:
        number = birth.number(name)
        return None if number is None else torch.tensor([number], dtype=torch.float64)
    counts = birth.name in CASTS  # an integer is a value there, and not an index
    if not (tensor.is_floating_point() or counts) or tensor.layout is not torch.strided:
        return None
    found = birth.at_bad(name)
    if found is None:
        found = tensor.detach().double()
    found = found.flatten()
    return found[torch.isfinite(found)]
