"""Which instruction of the program's own code a recorded call stands at."""

from __future__ import annotations

from types import CodeType

from nanwatch.watching.stack import MODE_METHODS, Stack, is_library


def user_place(stack: Stack) -> tuple[CodeType, int] | None:
    return next(
        (
            (code, lasti)
            for code, lasti in stack
            if not is_library(code.co_filename) and code.co_name not in MODE_METHODS
        ),
        None,
    )
