"""Runs the CUDA kernels on the CPU, in triton's interpreter, and prints what they found, a line each.

    TRITON_INTERPRET=1 python interpreted_kernels.py < cases.json

A case: {"kind": "statistics" or "latch", "dtype", "rows": [[values], …], "loss", "loss_dtype", "latched",
"offset"}.
"""

from __future__ import annotations

import contextlib
import json
import sys
from array import array
from typing import Any

import torch
from torch import Tensor

from nanwatch.tensors import cuda, cuda_norm, triton_kernels
from nanwatch.tensors.memory import FLOATS

cuda._most_programs = lambda index: 3  # type: ignore[assignment]
cuda.on_device = lambda index: contextlib.nullcontext()


def row_of(values: list[Any], dtype: torch.dtype, offset: int) -> Tensor:
    """[value, how often, value, how often, …] as a tensor that begins `offset` values into its memory."""
    pairs = zip(values[::2], values[1::2], strict=True)
    parts = [torch.full((often,), float(value)) for value, often in pairs]
    return torch.cat([torch.zeros(offset), *parts]).to(dtype)[offset:]


def latched(rows: list[Tensor], loss: Tensor, was: float, aligned: bool) -> dict[str, list[float]]:
    table, columns, chunks = cuda_norm.cut(array("q", [row.numel() for row in rows]))
    parts = torch.zeros(chunks + 1, dtype=torch.float64)
    letter = torch.zeros(cuda_norm.ANSWER_WORDS + len(rows), dtype=torch.int64)
    letter[cuda_norm.ANSWER_WORDS :] = torch.tensor([row.data_ptr() for row in rows])
    kept = torch.tensor([was, -1.0, -1.0])
    constants = cuda_norm.constants_for(FLOATS.index(rows[0].dtype), True, aligned, columns)
    given = table, letter, parts, kept, loss
    triton_kernels.squares_kernel[(chunks, 1, 1)](*given, **constants._asdict(), num_warps=cuda_norm.WARPS)
    assert parts[-1] == 0, "the counter must be as it was for the next step"
    answer = letter[: cuda_norm.ANSWER_WORDS].view(torch.float32)[:3]
    return {"kept": kept.tolist(), "answer": answer.tolist()}


for case in json.load(sys.stdin):
    dtype, offset = getattr(torch, case["dtype"]), case.get("offset", 0)
    rows = [row_of(values, dtype, offset) for values in case["rows"]]
    if case["kind"] == "statistics":
        found: Any = cuda._statistics_by_triton(rows[0]).tolist()
    else:
        loss = torch.tensor(float(case["loss"]), dtype=getattr(torch, case.get("loss_dtype", "float32")))
        found = latched(rows, loss, case["latched"], aligned=not offset)
    print(json.dumps(found))
