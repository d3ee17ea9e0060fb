"""What watching costs: each way of it, side by side in one run, as a ratio to the unwatched step.

    python -m bench.overhead                 CPU models, and GPU models where there is one
    python -m bench.overhead --rounds 12 --json overhead.json
    python -m bench.overhead --only nanwatch

In every round each way trains a copy of the model for a few steps, right after an unwatched copy has done
the same; the lower quartiles of all rounds are compared, so that what else the machine does counts
little. nanwatch is measured as it is after its first
seconds: sentinel, recorder, run folder and the audit's share of 1% are on.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.models import Task, cpu_tasks, gpu_tasks

Watch = Callable[[nn.Module], contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def bare(model: nn.Module) -> Iterator[None]:
    yield


def nanwatch_in(mode: str) -> Watch:
    @contextlib.contextmanager
    def watched(model: nn.Module) -> Iterator[None]:
        import nanwatch

        with (
            tempfile.TemporaryDirectory() as folder,
            nanwatch.watch(mode=mode, dir=folder, audit_seconds=0.0),
        ):
            yield

    return watched


@contextlib.contextmanager
def anomaly(model: nn.Module) -> Iterator[None]:
    with torch.autograd.detect_anomaly():
        yield


@contextlib.contextmanager
def underflow_overflow(model: nn.Module) -> Iterator[None]:
    from transformers.debug_utils import DebugUnderflowOverflow

    before = {m: dict(m._forward_hooks) for m in model.modules()}
    with contextlib.redirect_stdout(None):
        DebugUnderflowOverflow(model)
        yield
    for module, hooks in before.items():
        module._forward_hooks.clear()
        module._forward_hooks.update(hooks)


@contextlib.contextmanager
def isfinite_hooks(model: nn.Module) -> Iterator[None]:
    def check(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor) and not torch.isfinite(output).all():
            raise FloatingPointError(type(module).__name__)

    handles = [m.register_forward_hook(check) for m in model.modules()]
    yield
    for handle in handles:
        handle.remove()


def ways(fused: bool, compiled: bool) -> dict[str, Watch]:
    found: dict[str, Watch] = {"nanwatch, host mode": nanwatch_in("host")}
    if fused:
        found["nanwatch, device mode"] = nanwatch_in("device")
    if not compiled:
        found["torch detect_anomaly"] = anomaly
        found["isfinite hook on each module"] = isfinite_hooks
        with contextlib.suppress(ImportError):
            import transformers.debug_utils  # noqa: F401

            found["transformers DebugUnderflowOverflow"] = underflow_overflow
    return found


class Trainer:
    """A model with its optimizer, trained a few steps at a time under one way of watching."""

    def __init__(
        self, task: Task, model: nn.Module, device: torch.device, fused: bool, compiled: bool
    ) -> None:
        self.task, self.device = task, device
        self.model = copy.deepcopy(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=fused)
        self.called = torch.compile(self.model) if compiled else self.model
        torch.manual_seed(0)
        self.batches = [task.batch(device) for _ in range(4)]

    def train(self, steps: int) -> None:
        for index in range(steps):
            x, y = self.batches[index % len(self.batches)]
            loss = self.task.loss(self.called, x, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def seconds(self, watch: Watch) -> float:
        with watch(self.model):
            self.train(2)
            self._settle()
            began = time.perf_counter()
            self.train(self.task.steps)
            self._settle()
            return (time.perf_counter() - began) / self.task.steps

    def _settle(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def measure(
    task: Task, device: torch.device, rounds: int, only: str, compiled: bool = False
) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    model = task.build().to(device)
    chosen = {name: way for name, way in ways(True, compiled).items() if only in name}
    plain = Trainer(task, model, device, True, compiled)
    watched = Trainer(task, model, device, True, compiled)
    for trainer in (plain, watched):
        trainer.train(3)
    unwatched: list[float] = []
    costs: dict[str, list[float]] = {name: [] for name in chosen}
    for round_number in range(rounds):
        for name, way in chosen.items():
            unwatched.append(plain.seconds(bare))
            costs[name].append(watched.seconds(way))
        print(f"\r{task.name}: round {round_number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    base = quiet(unwatched)
    return [
        {
            "task": task.name + (", compiled" if compiled else ""),
            "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
            "way": name,
            "ratio": round(quiet(found) / base, 3),
            "unwatched_ms": round(1000 * base, 3),
            "noise": round(quiet(unwatched[1::2]) / quiet(unwatched[::2]), 3),
        }
        for name, found in costs.items()
    ]


def quiet(seconds: list[float]) -> float:
    """The time of a step when nothing else disturbed the machine: the lower quartile."""
    return statistics.quantiles(seconds, n=4)[0] if len(seconds) > 1 else seconds[0]


def show(rows: list[dict[str, Any]]) -> None:
    print(f"\ntorch {torch.__version__}; ratio to the unwatched step, lower quartiles of all rounds")
    last = None
    for row in rows:
        head = (row["task"], row["device"])
        if head != last:
            last = head
            print(f"\n{row['task']} on {row['device']}")
            print(f"  {'unwatched':38} {row['unwatched_ms']} ms (against itself x{row['noise']:.3f})")
        print(f"  {row['way']:38} x{row['ratio']:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", default="", help="only the ways whose name contains this")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--skip-cpu", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if not options.skip_cpu:
        for task in cpu_tasks():
            rows += measure(task, torch.device("cpu"), options.rounds, options.only)
    if torch.cuda.is_available():
        for task in gpu_tasks():
            for compiled in (False, True):
                rows += measure(task, torch.device("cuda"), options.rounds, options.only, compiled)
    show(rows)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
