"""Source edits: each as text for the diff and as a function for code that is replayed call by call.

A repair is given the expression of the user's code that called the birth op. It returns the text that the
expression becomes, and what the call becomes, or None where it does not fit.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from nanwatch.explain.mechanism import LOGS, WITHIN_ONE
from nanwatch.explain.remedies.source_edit import Expression, expression_at
from nanwatch.replay.op_facts import CASTS

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

LARGE = 1e6
Call = Callable[..., Any]


@dataclass(frozen=True)
class Repair:
    """`node` of the source is to be written as `text`; `call` does the same to the recorded call."""

    expression: Expression
    node: ast.expr
    text: str
    call: Callable[[Call], Call] | None = None

    @property
    def source(self) -> str:
        return self.expression.replaced(self.node, self.text)


@dataclass(frozen=True)
class Operand:
    """Where the suspect operand stands in the source: its node, and which argument of the call it is."""

    node: ast.expr
    place: int


def operand_of(expression: Expression, place: int) -> Operand | None:
    """The operand number `place` of the call: in `torch.log(x)`, `x.log()` and `-x` that is x, in `a / b` and
    `torch.div(a, b)` the second is b."""
    node = expression.node
    if isinstance(node, ast.BinOp):
        return Operand((node.left, node.right)[place], place) if place < 2 else None
    if isinstance(node, ast.UnaryOp):
        return Operand(node.operand, 0) if place == 0 else None
    if not isinstance(node, ast.Call):
        return None
    given = list(node.args)
    if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
        given = [node.func.value, *given]
    if place >= len(given) or isinstance(given[place], ast.Starred):
        return None
    return Operand(given[place], place)


def _is_module(node: ast.expr) -> bool:
    """`torch`, `F`, `torch.nn.functional`: a module, as the file itself says. (A name that is no module is a
    tensor whose method is called.)"""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in (
        "torch",
        "F",
        "nn",
        "np",
        "math",
        "functional",
        "special",
    )


def wrapped(case: Case, place: int, change: Callable[[str], str], value: Call) -> Repair | None:
    """The operand `place` written as `change(its text)`; in a recorded call it goes through `value`."""
    if case.located.op is None:
        return None
    expression = expression_at(case.located.op.stack)
    operand = None if expression is None else operand_of(expression, place)
    if expression is None or operand is None:
        return None
    text = expression.text_of(operand.node)
    if not isinstance(operand.node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)):
        text = f"({text})"

    def call(function: Call) -> Call:
        def changed(*args: Any, **kwargs: Any) -> Any:
            given = list(args)
            if place < len(given):
                given[place] = value(given[place])
            return function(*given, **kwargs)

        return changed

    return Repair(expression, operand.node, change(text), call)


def smallest_of(case: Case) -> float:
    """A number that is small and that the dtype of the birth can divide by."""
    dtype = case.birth.dtype if case.birth is not None else None
    if dtype in (torch.float16, torch.float8_e4m3fn, torch.float8_e5m2):
        return 1e-4
    return 1e-12 if dtype is torch.float64 else 1e-8


def _tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _names(case: Case) -> set[str]:
    """The birth op, and the function whose derivative it is."""
    if case.birth is None or case.located.op is None:
        return set()
    return {case.birth.name, (case.located.op.node or "").partition("Backward")[0].lower()}


def clamp_log(case: Case) -> Repair | None:
    if not _names(case) & set(LOGS):
        return None
    least = smallest_of(case)
    return wrapped(case, 0, lambda x: f"{x}.clamp_min({least:g})", lambda x: x.clamp_min(least))


def log_softmax(case: Case) -> Repair | None:
    """`log(softmax(x))` in one expression: `log_softmax(x)`."""
    found = clamp_log(case)
    if found is None or not isinstance(found.node, ast.Call):
        return None
    inner, outer = found.node, found.expression.node
    if not isinstance(inner.func, ast.Attribute) or inner.func.attr != "softmax":
        return None
    source = found.expression.text_of(inner)
    new = source.replace(".softmax(", ".log_softmax(", 1)
    return Repair(found.expression, outer, new, None)


def clamp_divisor(case: Case) -> Repair | None:
    birth = case.birth
    if birth is None:
        return None
    least = smallest_of(case)
    if birth.name in ("reciprocal", "rsqrt"):
        return wrapped(case, 0, lambda x: f"({x} + {least:g})", lambda x: x + least)
    divisor = birth.tensor("other") if birth.name != "addcdiv" else birth.tensor("tensor2")
    signed = divisor is not None and bool((divisor < 0).any())
    if signed:
        return wrapped(
            case,
            1,
            lambda x: f"torch.where({x} == 0, {least:g}, {x})",
            lambda x: torch.where(x == 0, least, x) if _tensor(x) else (x or least),
        )
    return wrapped(
        case,
        1,
        lambda x: f"{x}.clamp_min({least:g})",
        lambda x: x.clamp_min(least) if _tensor(x) else max(x, least),
    )


def max_with_one(case: Case) -> Repair | None:
    """A count that may be zero."""
    return wrapped(
        case, 1, lambda x: f"{x}.clamp_min(1)", lambda x: x.clamp_min(1) if _tensor(x) else max(x, 1)
    )


def eps_inside_sqrt(case: Case) -> Repair | None:
    least = smallest_of(case)
    return wrapped(case, 0, lambda x: f"({x} + {least:g})", lambda x: x + least)


def clamp_domain(case: Case) -> Repair | None:
    """The operand of the birth op, or of the function whose derivative it is, off the edge of the domain."""
    if case.birth is None or case.located.op is None:
        return None
    names = _names(case)
    off = 1e-3 if case.birth.narrow else 1e-6
    if names & set(WITHIN_ONE):
        edge = 1 - off
        return wrapped(case, 0, lambda x: f"{x}.clamp({-edge}, {edge})", lambda x: x.clamp(-edge, edge))
    least = 1 + off if "acosh" in names else smallest_of(case)
    return wrapped(case, 0, lambda x: f"{x}.clamp_min({least:.7g})", lambda x: x.clamp_min(least))


def bounded_exp(case: Case) -> Repair | None:
    dtype = case.birth.dtype if case.birth is not None else None
    if case.birth is None or dtype is None or not dtype.is_floating_point:
        return None
    most = 10 if torch.finfo(dtype).max < LARGE else 20  # so that the result can still be squared
    return wrapped(case, 0, lambda x: f"{x}.clamp(max={most})", lambda x: x.clamp(max=most))


def upcast_op(case: Case) -> Repair | None:
    if case.birth is not None and case.birth.name in CASTS:
        return None  # the conversion itself leaves the range
    return wrapped(case, 0, lambda x: f"{x}.float()", lambda x: x.float() if _tensor(x) else x)


def bfloat16_cast(case: Case) -> Repair | None:
    """`x.half()`, `x.to(torch.float16)`: a conversion whose value float16 cannot hold."""
    if case.located.op is None or case.birth is None or case.birth.name not in CASTS:
        return None
    expression = expression_at(case.located.op.stack)
    if expression is None or not isinstance(expression.node, ast.Call):
        return None
    whole = expression.text_of(expression.node)
    new = re.sub(r"\.half\(\)$", ".bfloat16()", re.sub(r"\btorch\.(float16|half)\b", "torch.bfloat16", whole))

    def call(function: Call) -> Call:
        return lambda x, *args, **kwargs: function(x, *args, **{**kwargs, "dtype": torch.bfloat16})

    return None if new == whole else Repair(expression, expression.node, new, call)


def safe_masked_softmax(case: Case) -> Repair | None:
    """A row of nothing but -inf gives zeros, and the gradient 0."""
    if case.located.op is None:
        return None
    expression = expression_at(case.located.op.stack)
    operand = None if expression is None else operand_of(expression, 0)
    if expression is None or operand is None or not isinstance(expression.node, ast.Call):
        return None
    dim = case.birth.arguments.get("dim", -1) if case.birth is not None else -1
    scores = expression.text_of(operand.node)
    if not isinstance(operand.node, (ast.Name, ast.Attribute)):
        return None
    empty = f'({scores} == float("-inf")).all({dim}, keepdim=True)'
    whole = expression.text_of(expression.node)
    inner = expression.text_of(operand.node)
    new = whole.replace(inner, f"{inner}.masked_fill({empty}, 0.0)", 1) + f".masked_fill({empty}, 0.0)"

    def call(function: Call) -> Call:
        def changed(given: Any, *args: Any, **kwargs: Any) -> Any:
            nothing = (given == float("-inf")).all(dim, keepdim=True)
            return function(given.masked_fill(nothing, 0.0), *args, **kwargs).masked_fill(nothing, 0.0)

        return changed

    return Repair(expression, expression.node, new, call)


def guarded_mean(case: Case) -> Repair | None:
    """The mean of nothing is 0."""
    if case.located.op is None or case.birth is None:
        return None
    expression = expression_at(case.located.op.stack)
    if expression is None or not isinstance(expression.node, ast.Call):
        return None
    node = expression.node
    if (
        isinstance(node.func, ast.Attribute)
        and node.func.attr == "mean"
        and not node.args
        and not node.keywords
    ):
        if _is_module(node.func.value):
            return None
        values = expression.text_of(node.func.value)
        new = f"{values}.sum() / max({values}.numel(), 1)"
        return Repair(expression, node, f"({new})", lambda _: lambda x: x.sum() / max(x.numel(), 1))
    return _guarded_loss(expression, node)


def _guarded_loss(expression: Expression, node: ast.Call) -> Repair | None:
    """`cross_entropy` or `nll_loss` of targets that are all ignored."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name not in ("cross_entropy", "nll_loss") or len(node.args) < 2:
        return None
    given = {k.arg: k.value for k in node.keywords}
    if "reduction" in given or "weight" in given or None in given:
        return None
    ignored = expression.text_of(given["ignore_index"]) if "ignore_index" in given else "-100"
    target = expression.text_of(node.args[1])
    whole = expression.text_of(node)
    new = f'{whole[:-1].rstrip().rstrip(",")}, reduction="sum") / ({target} != {ignored}).sum().clamp_min(1)'

    def call(function: Call) -> Call:
        def changed(*args: Any, **kwargs: Any) -> Any:
            kept = (args[1] != kwargs.get("ignore_index", -100)).sum().clamp_min(1)
            return function(*args, **{**kwargs, "reduction": "sum"}) / kept

        return changed

    return Repair(expression, node, f"({new})", call)


def double_where(case: Case) -> Repair | None:
    """`where(condition, f(x), other)`: give f a harmless operand where its result is not taken."""
    if case.located.op is None:
        return None
    expression = expression_at(case.located.op.stack)
    operand = None if expression is None else operand_of(expression, 0)
    if expression is None or operand is None:
        return None
    chooser = next((n for n in ast.walk(expression.statement) if _chooses(n, expression.node)), None)
    if not isinstance(chooser, ast.Call):
        return None
    condition = expression.text_of(chooser.args[0])
    taken_when_true = _within(chooser.args[1], expression.node)
    x = expression.text_of(operand.node)
    new = f"torch.where({condition}, {x}, 1.0)" if taken_when_true else f"torch.where({condition}, 1.0, {x})"
    return Repair(expression, operand.node, new, None)


def _chooses(node: ast.AST, inner: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or len(node.args) != 3:
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name == "where" and any(_within(branch, inner) for branch in node.args[1:])


def _within(outer: ast.AST, inner: ast.AST) -> bool:
    return any(n is inner for n in ast.walk(outer))


REPAIRS: dict[str, Callable[[Case], Repair | None]] = {
    "log-softmax": log_softmax,
    "clamp-log": clamp_log,
    "clamp-divisor": clamp_divisor,
    "max-with-one": max_with_one,
    "eps-inside-sqrt": eps_inside_sqrt,
    "clamp-domain": clamp_domain,
    "bounded-exp": bounded_exp,
    "upcast-op": upcast_op,
    "bfloat16-cast": bfloat16_cast,
    "safe-masked-softmax": safe_masked_softmax,
    "guarded-mean": guarded_mean,
    "double-where": double_where,
}
