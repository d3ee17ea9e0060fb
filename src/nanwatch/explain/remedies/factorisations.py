"""Repairs of matrix factorisations whose derivative divides by what two eigenvalues differ by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nanwatch.explain.remedies.operands import Repair, names_of, wrapped

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

FACTORISES = frozenset("linalgeigh linalg_eigh _linalg_eigh linalgsvd linalg_svd _linalg_svd".split())
SPREAD = 1e-3
"""Of the largest entry: how far the eigenvalues are moved apart in all."""
RAMP = "torch.linspace(0, 1, {x}.shape[-1]).to({x}).diag()"


def split_eigenvalues(case: Case) -> Repair | None:
    """`eigh` or `svd` of a square matrix with a value that is there twice: a different small number on each
    place of the diagonal takes them apart."""
    if not names_of(case) & FACTORISES:
        return None
    return wrapped(
        case,
        0,
        lambda x: f"{x} + {SPREAD:g} * {x}.detach().abs().amax() * {RAMP.format(x=x)}",
        _spread,
    )


def _spread(x: torch.Tensor) -> torch.Tensor:
    ramp = torch.linspace(0, 1, x.shape[-1]).to(x).diag()
    return x + SPREAD * x.detach().abs().amax() * ramp
