"""One expression of the user's source, changed: the diff to show, and the code to run with it."""

from __future__ import annotations

import ast
import difflib
import gc
import linecache
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType

from nanwatch.watching.stack import Stack, is_users

Position = tuple[int, int, int, int]
"""First line, last line, first column, last column (in bytes of the line), as code objects have them."""


@dataclass(frozen=True)
class Expression:
    """The expression of the user's code in which an op was called."""

    code: CodeType
    lasti: int
    node: ast.expr
    statement: ast.stmt
    lines: tuple[str, ...]

    @property
    def file(self) -> str:
        return self.code.co_filename

    def text_of(self, node: ast.AST) -> str:
        """The source text of a part of it."""
        return ast.get_source_segment("".join(self.lines), node) or ast.unparse(node)

    def replaced(self, node: ast.expr, text: str) -> str:
        """The whole file with `node` written as `text`."""
        lines = [line.encode() for line in self.lines]
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
        return b"".join([*lines[:first], head + text.encode() + tail, *lines[last + 1 :]]).decode()


def expression_at(stack: Stack) -> Expression | None:
    """The innermost expression of the user's own code on this stack; None where there is no source."""
    for code, lasti in stack:
        if is_users(code):
            return _expression(code, lasti)
    return None


def _expression(code: CodeType, lasti: int) -> Expression | None:
    lines = linecache.getlines(code.co_filename)
    try:
        position = list(code.co_positions())[lasti // 2]
        tree = ast.parse("".join(lines))
    except (IndexError, SyntaxError, ValueError):
        return None
    wanted = (position[0], position[1], position[2], position[3])
    statement = None
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and _covers(node, wanted):
            statement = node  # walked from the outside in: the last is the innermost
    found = next((n for n in ast.walk(tree) if isinstance(n, ast.expr) and _is_at(n, wanted)), None)
    if found is None or statement is None:
        return None
    return Expression(code, lasti, found, statement, tuple(lines))


def _is_at(node: ast.expr, position: tuple[int | None, ...]) -> bool:
    return (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == position


def _covers(node: ast.stmt, position: tuple[int | None, ...]) -> bool:
    first, last = position[0], position[1]
    if first is None or last is None:
        return False
    return node.lineno <= first and (node.end_lineno or node.lineno) >= last


def diff_of(expression: Expression, new: str) -> str:
    """A unified diff that `patch -p0` takes from the folder the program was started in."""
    shown = os.path.relpath(expression.file) if os.path.isabs(expression.file) else expression.file
    if shown.startswith(".."):
        shown = expression.file
    old = list(expression.lines)
    return "".join(difflib.unified_diff(old, new.splitlines(keepends=True), shown, shown, n=2))


@contextmanager
def edited(expression: Expression, new: str) -> Iterator[bool]:
    """Run with the edited source: every function that has this code gets the new one, and then its own back.
    False when no function can be changed so (code at the top of a script)."""
    replacement = _matching_code(compile(new, expression.file, "exec"), expression.code)
    functions = (
        [] if replacement is None else [f for f in gc.get_objects() if _is_function_of(f, expression.code)]
    )
    try:
        for function in functions:
            function.__code__ = replacement
        yield bool(functions)
    finally:
        for function in functions:
            function.__code__ = expression.code


def _is_function_of(candidate: object, code: CodeType) -> bool:
    return type(candidate) is FunctionType and candidate.__code__ is code


def _matching_code(compiled: CodeType, wanted: CodeType) -> CodeType | None:
    """The code of the same function in the edited file: same name, same place, same closure."""
    waiting = [compiled]
    while waiting:
        code = waiting.pop()
        waiting += [c for c in code.co_consts if isinstance(c, CodeType)]
        same_place = code.co_firstlineno == wanted.co_firstlineno and code.co_qualname == wanted.co_qualname
        if same_place and code.co_freevars == wanted.co_freevars:
            return code
    return None
