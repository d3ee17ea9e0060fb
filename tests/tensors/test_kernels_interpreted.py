"""The CUDA kernels where there is no GPU: in triton's interpreter, against what the CPU finds."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from nanwatch.tensors import numbers
from nanwatch.tensors.cuda_norm import CHUNK
from nanwatch.tensors.memory import FLOATS

pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels themselves are tested there"),
]

DTYPES = [str(dtype).removeprefix("torch.") for dtype in FLOATS]
Case = dict[str, Any]

SIZES = [1, 3, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5]
GOOD = [[0.5, size] for size in SIZES]
LATCHES: dict[str, tuple[Case, list[float]]] = {
    "good": ({}, [0.0, 2.5, 0.5 * math.sqrt(sum(SIZES))]),
    "not aligned": ({"offset": 1}, [0.0, 2.5, 0.5 * math.sqrt(sum(SIZES))]),
    "bad before": ({"latched": 1.0}, [1.0, 2.5, 0.5 * math.sqrt(sum(SIZES))]),
    "bad loss": ({"loss": "nan"}, [1.0, math.nan, 0.5 * math.sqrt(sum(SIZES))]),
    "endless loss": ({"loss": "-inf"}, [1.0, -math.inf, 0.5 * math.sqrt(sum(SIZES))]),
    "half a loss": ({"loss_dtype": "bfloat16"}, [0.0, 2.5, 0.5 * math.sqrt(sum(SIZES))]),
    "bad half": ({"loss_dtype": "float16", "loss": "inf"}, [1.0, math.inf, 0.5 * math.sqrt(sum(SIZES))]),
    "inf at the end": ({"rows": [*GOOD, [0.5, CHUNK + 6, "inf", 1]]}, [1.0, 2.5, math.inf]),
    "nan at the begin": ({"rows": [["nan", 1, 0.5, 9], *GOOD]}, [1.0, 2.5, math.nan]),
    "one": ({"rows": [[3.0, 1]]}, [0.0, 2.5, 3.0]),
    "seventeen": ({"rows": [[1.0, 4]] * 17}, [0.0, 2.5, math.sqrt(68)]),
}
SPECIAL: dict[str, list[Any]] = {
    "plain": [0.5, 3000, -2.0, 40_000, 1.5, 2777],
    "zeros": [0.0, 70_000],
    "nan": [1.0, 30_000, "nan", 3, -1.0, 20_001],
    "both infinities": ["inf", 2, 1.0, 33_000, "-inf", 1],
    "nothing finite": ["nan", 5, "inf", 1],
    "one": [7.0, 1],
}


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str, str], Any]:
    """(kind, name, dtype) -> what the kernel found: one process for all, since it takes seconds to start."""
    cases: dict[tuple[str, str, str], Case] = {}
    for dtype in DTYPES:
        for name, (case, _) in LATCHES.items():
            usual = {"rows": GOOD, "loss": 2.5, "latched": 0.0}
            cases["latch", name, dtype] = {"kind": "latch", "dtype": dtype, **usual, **case}
        for name, values in SPECIAL.items():
            cases["statistics", name, dtype] = {"kind": "statistics", "dtype": dtype, "rows": [values]}
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("interpreted_kernels.py"))],
        input=json.dumps(list(cases.values())),
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return dict(zip(cases, map(json.loads, ran.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LATCHES)
def test_the_verdict_is_kept_and_answered(found: dict[Any, Any], name: str, dtype: str) -> None:
    expected = pytest.approx(LATCHES[name][1], rel=1e-5, nan_ok=True)
    assert found["latch", name, dtype] == {"kept": expected, "answer": expected}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SPECIAL)
def test_the_statistics_are_those_of_the_cpu(found: dict[Any, Any], name: str, dtype: str) -> None:
    values = SPECIAL[name]
    pairs = zip(values[::2], values[1::2], strict=True)
    row = torch.cat([torch.full((often,), float(value)) for value, often in pairs]).to(getattr(torch, dtype))
    nan, posinf, neginf, low, high, total, squares = found["statistics", name, dtype]
    known = numbers(row)
    assert (nan, posinf, neginf) == (known.nan, known.posinf, known.neginf)
    finite = row[row.isfinite()].double()
    assert (low, high) == (
        (finite.min().item(), finite.max().item()) if len(finite) else (math.inf, -math.inf)
    )
    assert total == pytest.approx(finite.sum().item(), rel=1e-5)
    assert squares == pytest.approx(finite.square().sum().item(), rel=1e-5)
