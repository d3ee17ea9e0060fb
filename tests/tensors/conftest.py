"""The slow and obvious way to the same numbers, and both ways of the CPU: compiled and by torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from nanwatch.records import Numbers
from nanwatch.tensors import compiled


def naive(t: torch.Tensor) -> dict[str, float | None]:
    values = t.detach().cpu()
    if values.is_complex():
        z = values.resolve_conj().resolve_neg().to(torch.complex128).numpy().reshape(-1)
        flat = np.where(np.isnan(z.real) | np.isnan(z.imag), np.nan, np.hypot(z.real, z.imag))
    else:
        flat = values.to(torch.float64).resolve_neg().numpy().reshape(-1)
    good = flat[np.isfinite(flat)]
    counts = {
        "nan": np.isnan(flat).sum(),
        "posinf": np.isposinf(flat).sum(),
        "neginf": np.isneginf(flat).sum(),
    }
    if not good.size:
        return {**counts, "min": None, "max": None, "mean": None, "norm": None}
    scale = float(np.abs(good).max()) or 1.0
    mean = float(np.sum(good / scale, dtype=np.longdouble)) / good.size * scale
    norm = math.sqrt(np.sum((good / scale) ** 2, dtype=np.longdouble)) * scale
    return {**counts, "min": float(good.min()), "max": float(good.max()), "mean": mean, "norm": norm}


def assert_same(measured: Numbers, t: torch.Tensor) -> None:
    expected = naive(t)
    assert measured.count == t.numel()
    for field in ("nan", "posinf", "neginf", "min", "max"):
        assert getattr(measured, field) == expected[field], field
    if expected["norm"] is None:
        assert measured.norm is None and measured.mean is None
        return
    assert measured.norm == pytest.approx(expected["norm"], rel=1e-5)
    largest = max(abs(expected["min"]), abs(expected["max"]))
    assert measured.mean == pytest.approx(expected["mean"], rel=1e-5, abs=1e-5 * largest)


@pytest.fixture(scope="session")
def check() -> Callable[[Numbers, torch.Tensor], None]:
    return assert_same


@pytest.fixture(scope="module", params=["compiled", "torch"])
def both_ways(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            patch.setattr(compiled, "library", lambda: None)
        elif not compiled.wait_until_ready():
            pytest.skip("no C compiler here")
        yield request.param
