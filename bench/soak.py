"""A long training with random faults, watched: does it come through?

    python -m bench.soak                       6000 steps, 120 faults of twelve kinds
    python -m bench.soak --steps 20000 --faults 400 --seed 7

Printed for each kind: injected, survived, missed. A fault is survived when nanwatch has skipped or gone back
before the next one, or the process went on where it was killed; else it is missed. At the end: whether all
weights and moments are finite, whether every step of the plan was made (a killed process goes on from its
last good state, a rollback makes its steps again), and how many early warnings were right and wrong.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.soak_training import FAULTS

NEAR = 6
"""Steps after a fault within which it must show."""
SOON = 50
"""Steps within which what was warned of must come."""
SILENT = ("full disk",)
"""Nothing of the training goes bad: it must only go on."""


def soak(steps: int, faults: int, seed: int, folder: Path) -> dict[str, Any]:
    chance = random.Random(seed)
    kinds = [FAULTS[i % len(FAULTS)] for i in range(faults)]
    chance.shuffle(kinds)
    room = max(NEAR + 2, (steps - 20) // max(1, faults))
    plan = {10 + i * room + chance.randrange(max(1, room - NEAR)): kind for i, kind in enumerate(kinds)}
    (folder / "plan.json").write_text(json.dumps(plan))
    events: list[dict[str, Any]] = []
    starts = 0
    while not events or events[-1].get("event") != "end":
        starts += 1
        if starts > faults + 5:
            raise SystemExit(f"the training does not come to its end: {events[-3:]}")
        done = subprocess.run(
            [sys.executable, "-m", "bench.soak_training", str(steps), str(folder)],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        events += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode not in (0, -9):
            raise SystemExit(done.stderr[-3000:])
        print(f"\r{events[-1].get('step', 0)} of {steps} steps, {starts} processes", end="", file=sys.stderr)
    print(file=sys.stderr)
    return judged(plan, events, starts, steps)


def judged(plan: dict[int, str], events: list[dict[str, Any]], starts: int, steps: int) -> dict[str, Any]:
    rows: dict[str, collections.Counter[str]] = {kind: collections.Counter() for kind in FAULTS}
    for number, event in enumerate(events):
        if event["event"] != "fault":
            continue
        row = rows[event["fault"]]
        row["injected"] += 1
        later = events[number + 1 :]
        nxt = next((i for i, e in enumerate(later) if e["event"] == "fault"), len(later))
        seen = any(e["event"] in ("acted", "resumed") for e in later[:nxt])
        missed = not seen and event["fault"] not in SILENT
        row["missed" if missed else "survived"] += 1
        row["unseen damage"] += missed and any(e["event"] == "not finite" for e in later[:nxt])
    end = events[-1]
    return {
        "rows": {kind: dict(row) for kind, row in rows.items() if row},
        "planned": len(plan),
        "processes": starts,
        "finite": end["finite"],
        "steps": end["step"],
        "all_steps": end["step"] == steps,
        "loss": end["loss"],
        "warnings": _warnings(events),
    }


def _warnings(events: list[dict[str, Any]]) -> dict[str, int]:
    """Right when nanwatch had to act soon afterwards, or a fault had just come."""
    found = {"right": 0, "wrong": 0}
    acted = [e["step"] for e in events if e["event"] in ("acted", "fault")]
    for event in events:
        if event["event"] == "warning":
            near = any(-NEAR <= step - event["step"] <= SOON for step in acted)
            found["right" if near else "wrong"] += 1
    return found


def show(found: dict[str, Any]) -> None:
    print(f"{'fault':28} injected  survived  missed")
    for kind, row in found["rows"].items():
        print(f"{kind:28} {row.get('injected', 0):8} {row.get('survived', 0):9} {row.get('missed', 0):7}")
    total = collections.Counter[str]()
    for row in found["rows"].values():
        total.update(row)
    print(f"{'all':28} {total['injected']:8} {total['survived']:9} {total['missed']:7}")
    print(f"missed though something was not finite: {total['unseen damage']}")
    print(f"steps made: {found['steps']}, all of them: {found['all_steps']}; processes: {found['processes']}")
    print(f"weights and moments finite: {found['finite']}; loss at the end: {found['loss']:.4g}")
    print(f"early warnings: {found['warnings']['right']} right, {found['warnings']['wrong']} wrong")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--faults", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    if options.steps < 20 + options.faults * (NEAR + 2):
        parser.error(
            f"--steps {options.steps}: {options.faults} faults need {20 + options.faults * (NEAR + 2)}"
        )
    with tempfile.TemporaryDirectory() as folder:
        found = soak(options.steps, options.faults, options.seed, Path(folder))
    show(found)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))
    lost = sum(row.get("missed", 0) for row in found["rows"].values())
    sys.exit(0 if found["finite"] and found["all_steps"] and not lost else 1)


if __name__ == "__main__":
    main()
