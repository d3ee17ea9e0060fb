"""A choice between two branches that were computed in lines of their own, each guarded where it is not taken.

inside = torch.acosh(1 / x)             inside = torch.acosh(1 / torch.where(x < 1, x, 0.5))
outside = torch.acos(1 / x)      ->     outside = torch.acos(1 / torch.where(x < 1, 1.5, x))
shape = torch.where(x < 1, inside, outside)
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nanwatch.explain.remedies.operands import Repair, function_called
from nanwatch.explain.remedies.source_edit import Expression, expression_at

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

Edit = tuple[ast.expr, str]


@dataclass(frozen=True)
class SeveralEdits(Repair):
    """A repair in more than one place."""

    new: str = ""

    @property
    def source(self) -> str:
        return self.new


@dataclass(frozen=True)
class _Condition:
    """A name compared with a number: `x < 1`."""

    name: str
    text: str
    when_true: float
    """A number for which it holds."""
    when_false: float


def guarded_branches(case: Case) -> Repair | None:
    expression = None if case.located.op is None else expression_at(case.located.op.stack)
    function = None if expression is None else _function_around(expression)
    if expression is None or function is None:
        return None
    assigned = _assigned_once(function)
    for node in ast.walk(function):
        edits = _edits(node, assigned, expression)
        if edits:
            return SeveralEdits(expression, *edits[0], None, _applied(expression, edits))
    return None


def _edits(node: ast.AST, assigned: dict[str, ast.Assign], expression: Expression) -> list[Edit]:
    """What is to be written instead in the branches of this `where`, if the birth is in one of them."""
    if not isinstance(node, ast.Call) or function_called(node) != "where" or len(node.args) != 3:
        return []
    condition = _condition(node.args[0])
    named = [(b, taken) for b, taken in zip(node.args[1:], (True, False), strict=True)]
    branches = [(assigned[b.id], taken) for b, taken in named if isinstance(b, ast.Name) and b.id in assigned]
    here = expression.statement.lineno
    if condition is None or all(branch.lineno != here for branch, _ in branches):
        return []
    return [
        (used, _guarded(condition, taken))
        for branch, taken in branches
        for used in ast.walk(branch.value)
        if isinstance(used, ast.Name) and used.id == condition.name
    ]


def _guarded(condition: _Condition, taken: bool) -> str:
    if taken:
        return f"torch.where({condition.text}, {condition.name}, {condition.when_true:g})"
    return f"torch.where({condition.text}, {condition.when_false:g}, {condition.name})"


def _condition(node: ast.expr) -> _Condition | None:
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.left, ast.Name):
        return None
    try:
        number = float(ast.literal_eval(node.comparators[0]))
    except (ValueError, TypeError):
        return None
    below, above = number - (abs(number) / 2 or 1.0), number + (abs(number) / 2 or 1.0)
    text = ast.unparse(node)
    if isinstance(node.ops[0], (ast.Lt, ast.LtE)):
        return _Condition(node.left.id, text, below, above)
    if isinstance(node.ops[0], (ast.Gt, ast.GtE)):
        return _Condition(node.left.id, text, above, below)
    if isinstance(node.ops[0], ast.NotEq):
        return _Condition(node.left.id, text, above, number)
    return None


def _function_around(expression: Expression) -> ast.AST | None:
    tree = ast.parse("".join(expression.lines))
    first, last = expression.statement.lineno, expression.statement.end_lineno or expression.statement.lineno
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.lineno <= first
        and (node.end_lineno or node.lineno) >= last
    ]
    return around[-1] if around else None  # walked from the outside in: the last is the innermost


def _assigned_once(function: ast.AST) -> dict[str, ast.Assign]:
    found: dict[str, list[ast.Assign]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node)
    return {name: nodes[0] for name, nodes in found.items() if len(nodes) == 1}


def _applied(expression: Expression, edits: list[Edit]) -> str:
    """The whole file with all of them, the last place first: then the others are still where they were."""
    new = "".join(expression.lines)
    for node, text in sorted(edits, key=lambda e: (e[0].lineno, e[0].col_offset), reverse=True):
        new = replace(expression, lines=tuple(new.splitlines(keepends=True))).replaced(node, text)
    return new
