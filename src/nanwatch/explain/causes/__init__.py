"""The closed list of causes, one file each. A cause file has

PAGE            `claim.Page`: what it means, in both languages
weigh(case)     a Claim, an Against, or None when it has nothing to do with this step
remedies(case)  what helps, tried where that can be done
"""

from __future__ import annotations

import importlib
from types import ModuleType

IDS = (
    "bad-input",
    "index-out-of-range",
    "empty-selection",
    "bad-weights",
    "uninitialised-memory",
    "optimizer-state",
    "running-stats",
    "half-overflow",
    "half-underflow",
    "mask-overflow",
    "fully-masked-row",
    "overflow",
    "log-of-zero",
    "divide-by-zero",
    "invalid-domain",
    "inf-arithmetic",
    "singular-gradient",
    "where-gradient",
    "infeasible-target",
    "invalid-probabilities",
    "divergence",
    "amp-misuse",
    "bad-hyperparameter",
    "transfer-race",
    "data-race",
    "stale-copy",
    "compiler-fault",
    "transient-fault",
    "corrupted-memory",
)

CAUSES: dict[str, ModuleType] = {
    identity: importlib.import_module(f"nanwatch.explain.causes.{identity.replace('-', '_')}")
    for identity in IDS
}
