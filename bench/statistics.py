"""How fast a tensor is measured, beside torch's own reductions, in one run.

python -m bench.statistics
python -m bench.statistics --json rates.json --megabytes 256
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from nanwatch import tensors

HALF_A_MILLISECOND_OF_CYCLES = 1_000_000
GPT_SIZES = {"124M": (12, 768), "355M": (24, 1024)}

Clock = Callable[[Callable[[], object]], float]


class Line(NamedTuple):
    """`share` is the rate of ours over the rate of theirs."""

    what: str
    ours_gb_per_s: float
    theirs: str
    theirs_gb_per_s: float
    share: float


def seconds_on_the_host(work: Callable[[], object], repeats: int = 9) -> float:
    work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def seconds_on_the_device(work: Callable[[], object], repeats: int = 21) -> float:
    """Of the device alone: it sleeps until the host has queued the work."""
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(4 * HALF_A_MILLISECOND_OF_CYCLES)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return sorted(times)[repeats // 2]


def compared(
    what: str, size: int, ours: Callable[[], object], theirs: str, other: Callable[[], object], clock: Clock
) -> Line:
    """Ours, theirs, ours, theirs: the better of each, so that a busy moment does not decide."""
    rounds = [(clock(ours), clock(other)) for _ in range(3)]
    mine, yours = (size / 1e9 / min(column) for column in zip(*rounds, strict=True))
    return Line(what, mine, theirs, yours, mine / yours)


def one_tensor_on_the_cpu(megabytes: int) -> list[Line]:
    lines = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        x = torch.randn(megabytes * 2**20 // dtype.itemsize).to(dtype)
        for theirs, other in {"aminmax": lambda x=x: torch.aminmax(x), "sum": lambda x=x: x.sum()}.items():
            ours = lambda x=x: tensors.numbers(x)  # noqa: E731
            lines.append(compared(f"numbers cpu {dtype}", x.nbytes, ours, theirs, other, seconds_on_the_host))
        verdict = lambda x=x: tensors.is_finite(x)  # noqa: E731
        lines.append(
            compared(
                f"is_finite cpu {dtype}", x.nbytes, verdict, "sum", lambda x=x: x.sum(), seconds_on_the_host
            )
        )
    return lines


def one_tensor_on_the_gpu() -> list[Line]:
    lines = []
    for dtype in (torch.bfloat16, torch.float32, torch.float16):
        x = torch.randn(2**31 // dtype.itemsize, device="cuda", dtype=dtype)
        lines.append(
            compared(
                f"statistics cuda {dtype} 2 GiB",
                x.nbytes,
                lambda x=x: tensors.statistics(x),
                "sum",
                lambda x=x: x.sum(),
                seconds_on_the_device,
            )
        )
    return lines


def gpt_gradients(layers: int, width: int, device: str, dtype: torch.dtype) -> list[torch.Tensor]:
    block = [(width,)] * 5 + [(3 * width, width), (3 * width,), (width, width), (4 * width, width)]
    block += [(4 * width,), (width, 4 * width), (width,)]
    shapes = [(50304, width), (1024, width), *block * layers, (width,), (width,)]
    return [torch.randn(shape, device=device, dtype=dtype) for shape in shapes]


def gradients(device: str, sizes: list[str], clock: Clock) -> list[Line]:
    lines = []
    for name in sizes:
        for dtype in (torch.float32, torch.bfloat16):
            grads = gpt_gradients(*GPT_SIZES[name], device, dtype)
            size = sum(g.nbytes for g in grads)
            what = f"norm_and_verdict {device} {name} {dtype} {len(grads)} tensors"
            for theirs, other in norms_of_torch(grads).items():
                lines.append(
                    compared(what, size, lambda g=grads: tensors.norm_and_verdict(g), theirs, other, clock)
                )
    return lines


def norms_of_torch(grads: list[torch.Tensor]) -> dict[str, Callable[[], object]]:
    return {
        "foreach_norm": lambda: torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads, 2))),
        "get_total_norm": lambda: torch.nn.utils.get_total_norm(grads),
    }


def microseconds_of_the_host(work: Callable[[], object]) -> float:
    """What one call costs the thread that makes it, the device's own time left out: the device sleeps, and
    what is asked of it fits its queue."""
    repeats = 50 if torch.cuda.is_available() else 500
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda._sleep(1000 * HALF_A_MILLISECOND_OF_CYCLES)
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - began) / repeats * 1e6


def calls(device: str) -> dict[str, float]:
    small = torch.randn(16, device=device)
    grads = gpt_gradients(12, 64, device, torch.float32)
    asked: dict[str, Callable[[], object]] = {
        "statistics(16 values)": lambda: tensors.statistics(small),
        "sum(16 values)": lambda: small.sum(),
        f"norm_and_verdict({len(grads)} tensors)": lambda: tensors.norm_and_verdict(grads),
        f"foreach_norm({len(grads)} tensors)": norms_of_torch(grads)["foreach_norm"],
    }
    if device == "cpu":
        asked["is_finite(16 values)"] = lambda: tensors.is_finite(small)
        asked["numbers(16 values)"] = lambda: tensors.numbers(small)
        asked["sum(16 values).item()"] = lambda: small.sum().item()
    return {f"{name} {device}": microseconds_of_the_host(work) for name, work in asked.items()}


def show(lines: list[Line], cost: dict[str, float]) -> None:
    for line in lines:
        ours, theirs = f"{line.ours_gb_per_s:8.1f} GB/s", f"{line.theirs_gb_per_s:8.1f} GB/s"
        print(f"{line.what:62} {ours}   {line.theirs:14} {theirs}   {line.share:5.2f}")
    for name, microseconds in cost.items():
        print(f"{name:62} {microseconds:8.1f} us of the host a call")


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--json", type=Path, help="write the rates to this file too")
    options.add_argument("--megabytes", type=int, default=256, help="size of the CPU tensors")
    chosen = options.parse_args()
    compiled = tensors.wait_until_ready()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, C kernels: {compiled}")
    lines = one_tensor_on_the_cpu(chosen.megabytes) + gradients("cpu", ["124M"], seconds_on_the_host)
    cost = calls("cpu")
    if torch.cuda.is_available():
        print(torch.cuda.get_device_name())
        lines += one_tensor_on_the_gpu() + gradients("cuda", list(GPT_SIZES), seconds_on_the_device)
        cost |= calls("cuda")
    show(lines, cost)
    if chosen.json:
        record = {"rates": [line._asdict() for line in lines], "host_microseconds": cost}
        chosen.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
