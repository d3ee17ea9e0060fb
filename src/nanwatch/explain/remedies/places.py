"""Which instruction of the program's own code a recorded call stands at."""

from __future__ import annotations

from types import CodeType

from nanwatch.watching.stack import Stack, is_users


def user_place(stack: Stack) -> tuple[CodeType, int] | None:
    return next(
        ((code, lasti) for code, lasti in stack if is_users(code)),
        None,
    )
