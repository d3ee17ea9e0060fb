"""Where the suspect operand of a recorded op stands in the source, and the call with it rewritten."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from nanwatch.explain.remedies.source_edit import Expression, expression_at

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

Call = Callable[..., Any]
DIVIDES = frozenset("div div_ true_divide true_divide_ divide divide_ floor_divide remainder fmod".split())
TURNS_ROUND = frozenset("reciprocal reciprocal_ rsqrt rsqrt_".split())


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


def operand_of(expression: Expression, place: int) -> ast.expr | None:
    """The operand number `place` of the call: in `torch.log(x)`, `x.log()` and `-x` that is x, in `a / b` and
    `torch.div(a, b)` the second is b."""
    node = expression.node
    if isinstance(node, ast.BinOp):
        return (node.left, node.right)[place] if place < 2 else None
    if isinstance(node, ast.UnaryOp):
        return node.operand if place == 0 else None
    if not isinstance(node, ast.Call):
        return None
    given = list(node.args)
    if isinstance(node.func, ast.Attribute) and not is_module(node.func.value):
        given = [node.func.value, *given]
    if place >= len(given) or isinstance(given[place], ast.Starred):
        return None
    return given[place]


def is_module(node: ast.expr) -> bool:
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


def function_called(node: ast.expr) -> str:
    """ "log" of `torch.log(x)` and `x.log()`; nothing of what is no call."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def wrapped(
    case: Case, place: int, change: Callable[[str], str], value: Call, in_call: int | None = None
) -> Repair | None:
    """The operand `place` written as `change(its text)`; in a recorded call it goes through `value`.
    `in_call`: which argument it is there, if another: `1 / x` calls x.__rtruediv__(1)."""
    if case.located.op is None:
        return None
    expression = expression_at(case.located.op.stack)
    operand = None if expression is None else operand_of(expression, place)
    if expression is None or operand is None:
        return None
    text = expression.text_of(operand)
    if not isinstance(operand, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)):
        text = f"({text})"
    argument = place if in_call is None else in_call

    def call(function: Call) -> Call:
        def changed(*args: Any, **kwargs: Any) -> Any:
            given = list(args)
            if argument < len(given):
                given[argument] = value(given[argument])
            return function(*given, **kwargs)

        return changed

    return Repair(expression, operand, change(text), call)


def wrapped_divisor(case: Case, change: Callable[[str], str], value: Call) -> Repair | None:
    """What the line divides by, rewritten; None where the program wrote no division there."""
    expression = None if case.located.op is None else expression_at(case.located.op.stack)
    if expression is None or case.birth is None:
        return None
    node = expression.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod)):
        return wrapped(case, 1, change, value, in_call=0 if case.birth.name == "reciprocal" else 1)
    if function_called(node) in DIVIDES:
        return wrapped(case, 1, change, value)
    return wrapped(case, 0, change, value) if function_called(node) in TURNS_ROUND else None


def smallest_of(case: Case) -> float:
    """A number that is small and that the dtype of the birth can divide by."""
    dtype = case.birth.dtype if case.birth is not None else None
    if dtype in (torch.float16, torch.float8_e4m3fn, torch.float8_e5m2):
        return 1e-4
    return 1e-12 if dtype is torch.float64 else 1e-8


def names_of(case: Case) -> set[str]:
    """The birth op, and the function whose derivative it is."""
    if case.birth is None or case.located.op is None:
        return set()
    return {case.birth.name, (case.located.op.node or "").partition("Backward")[0].lower()}


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
