"""What device mode costs in a training that goes on: long turns, and every step of them.

    python -m bench.long_turns                           the smaller GPT on a GPU, eager and compiled
    python -m bench.long_turns --turns 6 --steps 300
    python -m bench.long_turns --task 24x1024

Where `python -m bench.overhead` has a large standard error, this shows whether all watched steps cost more,
or some turns have slow ones. A step that takes a tenth more than the middle one of its turn is slow.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.models import Task, cpu_tasks, gpu_tasks
from bench.overhead import UNWATCHED, Nanwatch, Trainer, VerdictByHand, Way, seconds_between

SLOW = 1.1


class Turn(NamedTuple):
    """The steps of one turn, in milliseconds of the device's own clock."""

    mean: float
    steps: list[float]

    @property
    def middle(self) -> float:
        return statistics.median(self.steps)

    def __str__(self) -> str:
        ordered = sorted(self.steps)
        p90, p99 = (ordered[int(share * len(ordered))] for share in (0.9, 0.99))
        slow = sum(step > SLOW * self.middle for step in ordered)
        return (
            f"mean {self.mean:.3f} ms, middle {self.middle:.3f}, p90 {p90:.2f}, p99 {p99:.2f}, "
            f"most {ordered[-1]:.1f}, slow {slow} of {len(ordered)}"
        )


def turn(trainer: Trainer, task: Task, way: Way, steps: int) -> Turn:
    way.put_on(trainer.model)
    trainer.train(task.settling)
    moments = [trainer.moment()]
    for _ in range(steps):
        trainer.train(1)
        moments.append(trainer.moment())
    mean = 1000 * seconds_between(moments[0], moments[-1]) / steps
    each = [1000 * seconds_between(a, b) for a, b in itertools.pairwise(moments)]
    way.take_off()
    return Turn(mean, each)


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
