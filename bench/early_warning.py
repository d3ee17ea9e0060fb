"""How often the early warning is right, on many small trainings of bench/small_trainings.py.

    python -m bench.early_warning
    python -m bench.early_warning --seeds 4 --json early.json --list

A divergence counts as warned in time when a warning came at least three steps before the first step that was
not finite. A run is healthy when all its steps were finite and its loss did not end above where it began; any
warning there is a false one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.small_trainings import records, trainings
from nanwatch.act.early_warning import EarlyWarning
from nanwatch.records import StepFacts

IN_TIME = 3
SLOW = 15
"""Steps; who diverges faster can hardly be warned."""


@dataclass(frozen=True)
class Outcome:
    """One run, and what was said about it."""

    name: str
    ending: str
    """ "diverged" (not finite), "healthy", or "worse": finite, and higher than it began."""
    bad_step: int | None
    rise: int | None
    """Steps from the last one with a usual loss to the bad one."""
    warnings: tuple[tuple[int, str, str], ...]
    """(step, id, what it was seen in)"""

    @property
    def in_time(self) -> bool:
        return self.bad_step is not None and any(
            step <= self.bad_step - IN_TIME for step, _, _ in self.warnings
        )


def judge(name: str, facts: Iterable[StepFacts]) -> Outcome:
    """Feeds the steps of one run to a new EarlyWarning."""
    warning = EarlyWarning()
    said: list[tuple[int, str, str]] = []
    losses: list[float] = []
    bad_step = None
    for step in facts:
        said += [(alarm.step, alarm.id, alarm.of) for alarm in warning.see(step)]
        if isinstance(step.loss, str) or isinstance(step.grad_norm, str):
            bad_step = step.step
            break
        if step.loss is not None:
            losses.append(abs(step.loss))
    if bad_step is not None:
        usual = 3 * max(losses[:3], default=0.0)
        quiet = [i for i, loss in enumerate(losses) if loss <= usual]
        return Outcome(name, "diverged", bad_step, bad_step - (quiet[-1] if quiet else 0), tuple(said))
    worse = statistics.median(losses[-10:]) > 1.5 * max(losses[:5])
    return Outcome(name, "worse" if worse else "healthy", None, None, tuple(said))


@dataclass(frozen=True)
class Figures:
    healthy: int
    false: int
    diverged: int
    warned: int
    late: int
    """Diverged after more than SLOW steps."""
    late_warned: int
    slow: int
    """The rise itself took more than SLOW steps."""
    slow_warned: int


def figures(outcomes: list[Outcome]) -> Figures:
    healthy = [o for o in outcomes if o.ending == "healthy"]
    diverged = [o for o in outcomes if o.ending == "diverged"]
    late = [o for o in diverged if (o.bad_step or 0) > SLOW]
    slow = [o for o in diverged if (o.rise or 0) > SLOW]
    return Figures(
        len(healthy),
        sum(bool(o.warnings) for o in healthy),
        len(diverged),
        sum(o.in_time for o in diverged),
        len(late),
        sum(o.in_time for o in late),
        len(slow),
        sum(o.in_time for o in slow),
    )


def show(outcomes: list[Outcome], with_list: bool) -> None:
    found = figures(outcomes)
    worse = [o for o in outcomes if o.ending == "worse"]
    rows = (
        ("healthy runs with a false warning", found.false, found.healthy),
        ("divergences warned in time", found.warned, found.diverged),
        (f"  that came after step {SLOW}", found.late_warned, found.late),
        (f"  whose rise took over {SLOW} steps", found.slow_warned, found.slow),
        ("finite but worse at the end, warned", sum(bool(o.warnings) for o in worse), len(worse)),
    )
    for name, part, whole in rows:
        print(f"{name:38} {part:4} of {whole:4}  {100 * part / max(whole, 1):.1f}%")
    lead = [o.bad_step - o.warnings[0][0] for o in outcomes if o.bad_step is not None and o.in_time]
    if lead:
        print(f"{'steps between warning and NaN':38} {statistics.median(lead):4.0f} (median)")
    if not with_list:
        return
    for outcome in outcomes:
        missed = outcome.ending == "diverged" and not outcome.in_time
        if missed or (outcome.ending == "healthy" and outcome.warnings):
            print(outcome.ending, outcome.name, outcome.bad_step, outcome.rise, outcome.warnings[:3])


def seconds_per_step(steps: list[StepFacts], rounds: int = 20) -> float:
    """What a step costs, of a run that was recorded before."""
    began = time.perf_counter()
    for _ in range(rounds):
        warning = EarlyWarning()
        for facts in steps:
            warning.see(facts)
    return (time.perf_counter() - began) / (rounds * len(steps))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0, help="others than the thresholds were set with")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--list", action="store_true", help="what was missed, and what was said for nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    outcomes = []
    chosen = trainings(options.seeds, options.steps, options.first_seed)
    for training in chosen:
        outcomes.append(judge(training.name, records(training)))
        print(f"\r{len(outcomes)} of {len(chosen)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    show(outcomes, options.list)
    cost = seconds_per_step(list(records(chosen[0])))
    print(f"{'a step costs':38} {1e6 * cost:.1f} µs")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))


if __name__ == "__main__":
    main()
