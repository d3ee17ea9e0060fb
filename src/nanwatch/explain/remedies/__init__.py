"""What helps. A remedy is a change of setting, a guard, a source edit or a way back; what can be tried on the
step that failed is tried, and only then called verified."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanwatch.records import Remedy

if TYPE_CHECKING:
    from nanwatch.explain.case import Case


def offer(case: Case, *ids: str) -> list[Remedy]:
    """The remedies of these ids that fit the case, in this order, each tried where that can be done."""
    return []
