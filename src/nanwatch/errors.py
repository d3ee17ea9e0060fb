"""What nanwatch raises. A leaf: imports nothing of ours."""

from __future__ import annotations

from typing import Any

EXIT_BAD_USE = 2
EXIT_NON_FINITE = 3


class NanwatchError(Exception):
    """Bad input: one sentence that says where, what was found, what was expected, what to do."""

    exit_code = EXIT_BAD_USE


class NonFiniteError(FloatingPointError):
    """A step went NaN or Inf and the policy is to stop. `incident` holds the whole record."""

    exit_code = EXIT_NON_FINITE

    def __init__(self, sentence: str, incident: Any = None) -> None:
        super().__init__(sentence)
        self.incident = incident
