"""Which programs show which cause, read from their truths.

python tests/cases/causes.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import truth as truths

IDS = tuple(cause for cause in truths.CAUSES if cause != "unknown")
CONFUSABLE = (
    ("half-overflow", "overflow"),
    ("fully-masked-row", "mask-overflow"),
    ("divergence", "bad-input"),
    ("where-gradient", "singular-gradient"),
    ("transient-fault", "data-race"),
    ("empty-selection", "divide-by-zero"),
    ("log-of-zero", "invalid-probabilities"),
    ("log-of-zero", "infeasible-target"),
    ("bad-weights", "uninitialised-memory"),
    ("bad-weights", "corrupted-memory"),
    ("uninitialised-memory", "corrupted-memory"),
    ("half-underflow", "divide-by-zero"),
    ("optimizer-state", "bad-hyperparameter"),
    ("amp-misuse", "half-overflow"),
    ("running-stats", "bad-input"),
    ("inf-arithmetic", "fully-masked-row"),
    ("stale-copy", "bad-weights"),
    ("compiler-fault", "overflow"),
)


def by_cause() -> dict[str, list[str]]:
    """Cause -> names of the programs whose first answer it is; every id of the list is there."""
    found: dict[str, list[str]] = {cause: [] for cause in IDS}
    for path in truths.all_programs():
        truth = truths.read(path)
        if truth.cause:
            found[truth.cause].append(truth.name)
    return found


def look_alikes() -> dict[tuple[str, str], list[str]]:
    """Pair -> programs that have the one cause and look like the other."""
    found: dict[tuple[str, str], list[str]] = {pair: [] for pair in CONFUSABLE}
    for path in truths.all_programs():
        truth = truths.read(path)
        for one, other in CONFUSABLE:
            if (truth.cause == one and other in truth.tempting) or (
                truth.cause == other and one in truth.tempting
            ):
                found[one, other].append(truth.name)
    return found


if __name__ == "__main__":
    for cause, names in by_cause().items():
        print(f"{cause:22}{len(names):3}  {' '.join(names)}")
    for (one, other), names in look_alikes().items():
        print(f"{one} / {other}: {' '.join(names) or '-'}")
