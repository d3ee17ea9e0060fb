"""Source edits: each as text for the diff and as a function for code that is replayed call by call.

A repair is given the expression of the user's code that called the birth op. It returns the text that the
expression becomes, and what the call becomes, or None where it does not fit.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from nanwatch.explain.mechanism import DIVISIONS, LOGS, WITHIN_ONE
from nanwatch.explain.provenance import whole_and_positive, zeros_at_bad
from nanwatch.explain.remedies.branches import guarded_branches
from nanwatch.explain.remedies.factorisations import split_eigenvalues
from nanwatch.explain.remedies.operands import (
    Call,
    Repair,
    function_called,
    is_module,
    is_tensor,
    names_of,
    operand_of,
    smallest_of,
    wrapped,
    wrapped_divisor,
)
from nanwatch.explain.remedies.source_edit import Expression, expression_at
from nanwatch.replay.op_facts import CASTS

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

LARGE = 1e6
EXPONENTIALS = frozenset("exp expm1 exp2 sinh cosh".split())
ROOTS = frozenset("sqrt rsqrt pow hypot norm linalgvectornorm linalg_vector_norm std var".split())


def clamp_log(case: Case) -> Repair | None:
    names = names_of(case)
    if not names & set(LOGS):
        return None
    least = smallest_of(case)
    place = 1 if names & {"xlogy", "special_xlog1py"} else 0
    return wrapped(case, place, lambda x: f"{x}.clamp_min({least:g})", lambda x: x.clamp_min(least))


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
    divisor = birth.tensor(DIVISIONS.get(birth.name, "other"))
    if divisor is None and birth.number(DIVISIONS.get(birth.name, "other")) is not None:
        return wrapped_divisor(case, lambda x: f"max({x}, {least:g})", lambda x: max(x, least))
    if divisor is not None and bool((divisor < 0).any()):
        return wrapped_divisor(
            case,
            lambda x: f"torch.where({x} == 0, {least:g}, {x})",
            lambda x: torch.where(x == 0, least, x) if is_tensor(x) else (x or least),
        )
    return wrapped_divisor(
        case,
        lambda x: f"{x}.clamp_min({least:g})",
        lambda x: x.clamp_min(least) if is_tensor(x) else max(x, least),
    )


def max_with_one(case: Case) -> Repair | None:
    """A count that may be zero; a length or a spread below 1 must stay what it is."""
    divisor = None if case.birth is None else case.birth.arguments.get(DIVISIONS.get(case.birth.name, ""))
    counts = whole_and_positive(divisor) if isinstance(divisor, torch.Tensor) else divisor == 0
    if not counts:
        return None
    if not is_tensor(divisor):
        return wrapped_divisor(case, lambda x: f"max({x}, 1)", lambda x: max(x, 1))
    return wrapped_divisor(case, lambda x: f"{x}.clamp_min(1)", lambda x: x.clamp_min(1))


def eps_inside_sqrt(case: Case) -> Repair | None:
    if not names_of(case) & ROOTS:
        return None
    least = smallest_of(case)
    return wrapped(case, 0, lambda x: f"({x} + {least:g})", lambda x: x + least)


def clamp_domain(case: Case) -> Repair | None:
    """The operand of the birth op, or of the function whose derivative it is, off the edge of the domain."""
    if case.birth is None or _power_of_any(case):
        return None
    names = names_of(case)
    off = 1e-3 if case.birth.narrow else 1e-6
    if names & set(WITHIN_ONE):
        edge = 1 - off
        return wrapped(case, 0, lambda x: f"{x}.clamp({-edge}, {edge})", lambda x: x.clamp(-edge, edge))
    least = 1 + off if "acosh" in names else smallest_of(case)
    return wrapped(case, 0, lambda x: f"{x}.clamp_min({least:.7g})", lambda x: x.clamp_min(least))


def _power_of_any(case: Case) -> bool:
    """A square or another whole power: every number is in its domain."""
    expression = None if case.located.op is None else expression_at(case.located.op.stack)
    if expression is None:
        return False
    node = expression.node
    if function_called(node) == "square":
        return True
    power = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
    exponent = operand_of(expression, 1) if power or function_called(node) == "pow" else None
    value = exponent.value if isinstance(exponent, ast.Constant) else None
    return isinstance(value, (int, float)) and float(value).is_integer() and value > 0


def bounded_exp(case: Case) -> Repair | None:
    dtype = case.birth.dtype if case.birth is not None else None
    if dtype is None or not dtype.is_floating_point or not names_of(case) & EXPONENTIALS:
        return None
    most = 10 if torch.finfo(dtype).max < LARGE else 20  # so that the result can still be squared
    return wrapped(case, 0, lambda x: f"{x}.clamp(max={most})", lambda x: x.clamp(max=most))


def upcast_op(case: Case) -> Repair | None:
    if case.birth is not None and case.birth.name in CASTS:
        return None  # the conversion itself leaves the range
    return wrapped(case, 0, lambda x: f"{x}.float()", lambda x: x.float() if is_tensor(x) else x)


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
    scores = expression.text_of(operand)
    if not isinstance(operand, (ast.Name, ast.Attribute)):
        return None
    empty = f'({scores} == float("-inf")).all({dim}, keepdim=True)'
    whole = expression.text_of(expression.node)
    inner = expression.text_of(operand)
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
        if is_module(node.func.value):
            return None
        values = expression.text_of(node.func.value)
        new = f"{values}.sum() / max({values}.numel(), 1)"
        return Repair(expression, node, f"({new})", lambda _: lambda x: x.sum() / max(x.numel(), 1))
    return _guarded_loss(expression, node)


def _guarded_loss(expression: Expression, node: ast.Call) -> Repair | None:
    """`cross_entropy` or `nll_loss` of targets that are all ignored."""
    if function_called(node) not in ("cross_entropy", "nll_loss") or len(node.args) < 2:
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
    x = expression.text_of(operand)
    new = f"torch.where({condition}, {x}, 1.0)" if taken_when_true else f"torch.where({condition}, 1.0, {x})"
    return Repair(expression, operand, new, None)


def where_not_product(case: Case) -> Repair | None:
    """`mask * x` with an infinity where the mask is 0: choose, do not multiply. A factor that is learned
    would get no gradient any more."""
    birth = case.birth
    expression = None if case.located.op is None else expression_at(case.located.op.stack)
    if birth is None or birth.name != "mul" or expression is None:
        return None
    node = expression.node
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    factors = [birth.tensor(name) for name in ("self", "other")]
    zeros = [zeros_at_bad(birth, name) for name in ("self", "other")]
    if None in factors or True not in zeros:
        return None
    mask = zeros.index(True)
    if _is_learned(case, mask):
        return None
    chosen, other = (operand_of(expression, place) for place in (mask, 1 - mask))
    if chosen is None or other is None:
        return None
    text = f"torch.where({expression.text_of(chosen)} == 0, 0.0, {expression.text_of(other)})"

    def call(function: Call) -> Call:
        def changed(*args: Any, **kwargs: Any) -> Any:
            given = list(args)
            given[1 - mask] = torch.where(given[mask] == 0, 0.0, given[1 - mask])
            return function(*given, **kwargs)

        return changed

    return Repair(expression, other, text, call)


def _is_learned(case: Case, place: int) -> bool:
    """Whether a gradient goes to this factor of the birth op."""
    node = None if case.birth is None else case.lineage.node_of(case.birth.op)
    leaves = [] if node is None else case.lineage.leaves_of(node, ("self", "other")[place])
    return any(leaf.requires_grad for leaf in leaves)


def _chooses(node: ast.AST, inner: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or len(node.args) != 3:
        return False
    return function_called(node) == "where" and any(_within(branch, inner) for branch in node.args[1:])


def _within(outer: ast.AST, inner: ast.AST) -> bool:
    return any(n is inner for n in ast.walk(outer))


REPAIRS: dict[str, Callable[[Case], Repair | None]] = {
    "split-eigenvalues": split_eigenvalues,
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
    "double-where": lambda case: double_where(case) or guarded_branches(case),
    "where-not-product": where_not_product,
}
