"""What watching costs: each way of it, side by side in one run, as a ratio to the unwatched step.

    python -m bench.overhead                 CPU models, and GPU models where there is one
    python -m bench.overhead --rounds 12 --json overhead.json
    python -m bench.overhead --only nanwatch

In every round each way trains the model for a few steps, once or several times, each between two times as
many unwatched ones of the same model: one ratio. The middle one of all is shown, with the two between which
half of them lie, so that what else the machine does can be seen; and, as "quiet", the ratio of the two
quickest quarters, watched and not, which counts only the moments in which the machine did little else.
nanwatch is measured as it is between two of its audits: sentinel, recorder and run folder. The audit's share
of the time (1%) comes on top.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import itertools
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
            nanwatch.watch(mode=mode, dir=folder, audit_seconds=0.0, audit_share=0.0),
        ):
            yield

    return watched


@contextlib.contextmanager
def surviving(model: nn.Module) -> Iterator[None]:
    """Skips and snapshots: measured over many steps, so that snapshots have their share of them."""
    import nanwatch

    with (
        tempfile.TemporaryDirectory() as folder,
        nanwatch.watch(policy="survive", dir=folder, audit_seconds=0.0, audit_share=0.0, snapshot_every=100),
    ):
        yield


LONG = 400
"""Steps in a round for what happens seldom: a snapshot in a hundred, one on disk in several hundred."""
FUSED = {"cpu": None, "cuda": True}
"""Of the optimizer: as torch has it where nobody asks, and what device mode needs."""
PEERS_EVERY = 4
"""Rounds; their costs are multiples, and seen from a few."""


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


def ways(task: Task, device: torch.device, compiled: bool) -> dict[str, Watch]:
    found: dict[str, Watch] = {"nanwatch, host mode": nanwatch_in("host")}
    if device.type == "cpu":
        if task.is_quick:
            found["nanwatch, survive, snapshots"] = surviving
    else:
        found["nanwatch, device mode"] = nanwatch_in("device")
    if not compiled and task.is_quick:
        found["torch detect_anomaly"] = anomaly
        found["isfinite hook on each module"] = isfinite_hooks
        with contextlib.suppress(ImportError):
            import transformers.debug_utils  # noqa: F401

            found["transformers DebugUnderflowOverflow"] = underflow_overflow
    return found


class Trainer:
    """A model with its optimizer, trained a few steps at a time under one way of watching."""

    def __init__(self, task: Task, model: nn.Module, device: torch.device, compiled: bool) -> None:
        self.task, self.device = task, device
        self.model = copy.deepcopy(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=FUSED[device.type])
        self.called = torch.compile(self.model) if compiled else self.model
        torch.manual_seed(0)
        self.batches = [task.batch(device) for _ in range(4)]

    def train(self, steps: int) -> list[float]:
        """How long each step took, as far as the host can tell."""
        times = [time.perf_counter()]
        for index in range(steps):
            x, y = self.batches[index % len(self.batches)]
            loss = self.task.loss(self.called, x, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            times.append(time.perf_counter())
        return [after - before for before, after in itertools.pairwise(times)]

    def seconds(self, watch: Watch, steps: int) -> float:
        """Of a step: the middle one, or, of many, all of them together."""
        with watch(self.model):
            self.train(2 if watch is bare else self.task.warm_up)
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            began = time.perf_counter()
            each = self.train(steps)
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            elif steps == self.task.steps:
                return statistics.median(each)
            return (time.perf_counter() - began) / steps


def measure(
    task: Task, device: torch.device, rounds: int, only: str, compiled: bool = False
) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    model = task.build().to(device)
    chosen = {name: way for name, way in ways(task, device, compiled).items() if only in name}
    trainer = Trainer(task, model, device, compiled)
    trainer.train(3)
    timed: dict[str, list[tuple[float, float, float]]] = {name: [] for name in chosen}
    for round_number in range(rounds):
        for name, way in chosen.items():
            if round_number % PEERS_EVERY and not name.startswith("nanwatch"):
                continue
            steps, unwatched = (LONG, LONG // 4) if way is surviving else (task.steps, task.steps)
            before = trainer.seconds(bare, unwatched)
            for _ in range(task.repeats if steps == task.steps and name.startswith("nanwatch") else 1):
                watched = trainer.seconds(way, steps)
                after = trainer.seconds(bare, unwatched)
                timed[name].append((before, watched, after))
                before = after
        print(f"\r{task.name}: round {round_number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    what = {
        "task": task.name + (", compiled" if compiled else ""),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
    }
    return [{**what, "way": name, **ratios(found)} for name, found in timed.items()]


def ratios(timed: list[tuple[float, float, float]]) -> dict[str, Any]:
    """Out of the seconds of a step before, during and after watching, round by round."""
    found = [watched / ((before + after) / 2) for before, watched, after in timed]
    unwatched = [seconds for before, _, after in timed for seconds in (before, after)]
    quiet = statistics.quantiles([watched for _, watched, _ in timed], n=4)[0]
    return {
        "ratio": round(statistics.median(found), 3),
        "middle_half": [round(q, 3) for q in statistics.quantiles(found, n=4)[::2]],
        "quiet": round(quiet / statistics.quantiles(unwatched, n=4)[0], 3),
        "unwatched_ms": round(1000 * statistics.median(unwatched), 3),
        "ratios": len(timed),
    }


def show(rows: list[dict[str, Any]]) -> None:
    print(f"\n{rows[0]['task']} on {rows[0]['device']}")
    print(f"  {'unwatched':38} {rows[0]['unwatched_ms']} ms")
    for row in rows:
        low, high = row["middle_half"]
        middle = f"x{row['ratio']:.3f}  ({low:.3f} to {high:.3f})"
        print(f"  {row['way']:38} {middle}  quiet x{row['quiet']:.3f}, {row['ratios']} ratios", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30, help=f"at least {PEERS_EVERY + 1}")
    parser.add_argument("--only", default="", help="only the ways whose name contains this")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--skip-cpu", action="store_true")
    parser.add_argument("--task", default="", help="only the models whose name contains this")
    options = parser.parse_args()
    if options.rounds <= PEERS_EVERY:
        parser.error(f"--rounds {options.rounds}: at least {PEERS_EVERY + 1}, to show how far they lie apart")
    wanted = [] if options.skip_cpu else [(task, "cpu", False) for task in cpu_tasks()]
    if torch.cuda.is_available():
        wanted += [(task, "cuda", compiled) for task in gpu_tasks() for compiled in (False, True)]
    print(f"torch {torch.__version__}; ratio to the unwatched step: the middle one of all, the two")
    print("between which half of them lie, and that of the quickest quarters", flush=True)
    rows: list[dict[str, Any]] = []
    for task, device, compiled in wanted:
        if options.task not in task.name:
            continue
        found = measure(task, torch.device(device), options.rounds, options.only, compiled)
        if not found:
            continue
        rows += found
        show(found)
        if options.json is not None:
            options.json.write_text(json.dumps(rows, indent=1))
    if not rows:
        parser.error(f"--only {options.only!r} --task {options.task!r}: no model here has such a way")


if __name__ == "__main__":
    main()
