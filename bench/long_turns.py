"""What device mode costs in a training that goes on: long turns, and every step of them.

    python -m bench.long_turns                           the smaller GPT on a GPU, eager and compiled
    python -m bench.long_turns --turns 6 --steps 300
    python -m bench.long_turns --task 24x1024

Where `python -m bench.overhead` has a large standard error, this shows whether all watched steps cost more,
or some turns have slow ones. A step that takes a tenth more than the middle one of its turn is slow. Linux
tells how long the process's threads waited for a core in a turn, and for how long a virtual machine's cores
were taken away from it (steal, in steps of 10 ms, all cores together).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.models import Task, cpu_tasks, gpu_tasks
from bench.overhead import UNWATCHED, Nanwatch, Trainer, VerdictByHand, Way, seconds_between

SLOW = 1.1


class Waits(NamedTuple):
    """Milliseconds since the start, as Linux counts them; 0 where it does not."""

    for_a_core: float
    stolen: float

    @classmethod
    def until_now(cls) -> Waits:
        waited = 0
        for thread in Path("/proc/self/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):  # it has just ended
                waited += int(thread.read_text().split()[1])
        with contextlib.suppress(OSError, IndexError):
            ticks = int(Path("/proc/stat").read_text().split(maxsplit=9)[8])
            return cls(waited / 1e6, 1000 * ticks / os.sysconf("SC_CLK_TCK"))
        return cls(waited / 1e6, 0.0)


class Turn(NamedTuple):
    """The steps of one turn, in milliseconds of the device's own clock."""

    mean: float
    steps: list[float]
    ahead: float
    """By how much the host was ahead in the end."""
    waits: Waits

    @property
    def middle(self) -> float:
        return statistics.median(self.steps)

    def __str__(self) -> str:
        ordered = sorted(self.steps)
        p90, p99 = (ordered[int(share * len(ordered))] for share in (0.9, 0.99))
        slow = sum(step > SLOW * self.middle for step in ordered)
        return (
            f"mean {self.mean:.3f} ms, middle {self.middle:.3f}, p90 {p90:.2f}, p99 {p99:.2f}, "
            f"most {ordered[-1]:.1f}, slow {slow} of {len(ordered)}; host {self.ahead:.1f} ahead, "
            f"waited {self.waits.for_a_core:.0f}, stolen {self.waits.stolen:.0f}"
        )


def turn(trainer: Trainer, task: Task, way: Way, steps: int) -> Turn:
    way.put_on(trainer.model)
    trainer.train(task.settling)
    before = Waits.until_now()
    moments = [trainer.moment()]
    for _ in range(steps):
        trainer.train(1)
        moments.append(trainer.moment())
    after, sent = Waits.until_now(), time.perf_counter()
    mean = 1000 * seconds_between(moments[0], moments[-1]) / steps
    ahead = 1000 * (time.perf_counter() - sent)
    each = [1000 * seconds_between(a, b) for a, b in itertools.pairwise(moments)]
    way.take_off()
    waits = Waits(after.for_a_core - before.for_a_core, after.stolen - before.stolen)
    return Turn(mean, each, ahead, waits)


def measure(task: Task, device: torch.device, compiled: bool, turns: int, steps: int) -> None:
    trainer = Trainer(task, device, compiled, clips=False, fused=True)
    ways = {
        "unwatched": UNWATCHED,
        "nanwatch, device mode": Nanwatch(mode="device"),
        "found_inf by hand": VerdictByHand(),
    }
    for way in ways.values():
        way.put_on(trainer.model)
        trainer.train(way.warm_up + 2)
        way.take_off()
    print(f"\n{task.name}{', compiled' if compiled else ''} on {device}", flush=True)
    found: dict[str, list[Turn]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            found[name].append(turn(trainer, task, way, steps))
            print(f"  {name:22} {found[name][-1]}", flush=True)
    for way in ways.values():
        way.end()
    means = {name: statistics.fmean(each.mean for each in found[name]) for name in ways}
    middles = {name: statistics.fmean(each.middle for each in found[name]) for name in ways}
    for name in [*ways][1:]:
        of_mean, of_middle = means[name] / means["unwatched"], middles[name] / middles["unwatched"]
        print(f"  {name:22} x{of_mean:.3f} of the mean step, x{of_middle:.3f} of the middle one", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", default="", help="the first model whose name contains this")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--steps", type=int, default=150, help="of each turn")
    options = parser.parse_args()
    if options.turns < 1 or options.steps < 1:
        parser.error(f"--turns {options.turns} --steps {options.steps}: at least 1 each")
    on_gpu = torch.cuda.is_available()
    task = next((t for t in (gpu_tasks() if on_gpu else cpu_tasks()) if options.task in t.name), None)
    if task is None:
        parser.error(f"--task {options.task!r}: no model here is called so")
    print(f"torch {torch.__version__}; time of a step by the clock of the device")
    for compiled in (False, True) if on_gpu else (False,):
        measure(task, torch.device("cuda" if on_gpu else "cpu"), compiled, options.turns, options.steps)


if __name__ == "__main__":
    main()
