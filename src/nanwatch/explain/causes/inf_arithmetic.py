"""TO BE WRITTEN: inf-arithmetic."""

from __future__ import annotations

from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim
from nanwatch.records import Remedy


def weigh(case: Case) -> Claim | Against | None:
    return None


def remedies(case: Case) -> list[Remedy]:
    return []
