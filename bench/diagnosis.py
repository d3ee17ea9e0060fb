"""How often the cause is right: every program of tests/cases, run unmodified, against its known truth.

    python -m bench.diagnosis                  all programs that have a cause
    python -m bench.diagnosis half divide      those whose name or cause contains a word
    python -m bench.diagnosis --json out.json --list

Printed: programs, right cause, right and proved, wrong, wrong though "proved", abstained (unknown), remedies
that were tried and hold, and what explaining cost as a multiple of the step. Healthy programs must get none.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE / "tests" / "cases"))

import truth as truths  # noqa: E402
from nursery import Nursery  # noqa: E402


def judge(truth: truths.Truth, nurseries: SimpleQueue[Nursery], options: list[str]) -> dict[str, Any]:
    nursery = nurseries.get()
    try:
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["-m", "nanwatch", "run", "--dir", f"{folder}/run", *options, *truth.options]
            arguments.append(str(truth.path))
            done = nursery.run(arguments, Path(folder))
            files = sorted(Path(folder).glob("run/incidents/*/incident.json"))
            incident = json.loads(files[0].read_text()) if files else None
    finally:
        nurseries.put(nursery)
    row: dict[str, Any] = {"program": truth.name, "truth": truth.cause, "also": list(truth.also)}
    if incident is None:
        return {
            **row,
            "found": None,
            "verdict": "healthy" if truth.healthy else "no incident",
            "exit": done.returncode,
        }
    cause = incident["cause"]
    right = cause["id"] in truth.causes
    verdict = "right" if right else ("abstained" if cause["id"] == "unknown" else "wrong")
    return {
        **row,
        "found": cause["id"],
        "certainty": cause["certainty"],
        "why": cause["why"],
        "verdict": "false alarm" if truth.healthy else verdict,
        "remedy_verified": any(r["verified"] for r in incident["remedies"]),
        "remedies": [r["id"] for r in incident["remedies"]],
        "others": [c["id"] for c in incident.get("others", ())],
        "experiments": [e["name"] for e in incident["experiments"]],
        "cost": incident.get("explained_in_steps"),
        "trouble": [line for line in done.stderr.splitlines() if "error of its own" in line],
    }


def show(rows: list[dict[str, Any]], everything: bool) -> None:
    asked = [r for r in rows if r["truth"]]
    count = {v: sum(r["verdict"] == v for r in asked) for v in ("right", "wrong", "abstained", "no incident")}
    proved = [r for r in asked if r["verdict"] == "right" and r["certainty"] == "proved"]
    false_proofs = [r for r in asked if r["verdict"] == "wrong" and r["certainty"] == "proved"]
    verified = [r for r in asked if r.get("remedy_verified")]
    costs = [r["cost"] for r in asked if r.get("cost")]
    for row in asked:
        if everything or row["verdict"] != "right":
            others = f"  also said: {', '.join(row['others'])}" if row.get("others") else ""
            print(
                f"{row['verdict']:11} {row['program']:44} {row['truth']:22} found {row['found']} "
                f"({row.get('certainty')}){others}"
            )
    for row in rows:
        if not row["truth"] and row["verdict"] != "healthy":
            print(f"FALSE ALARM {row['program']}: {row['found']}")
        for line in row.get("trouble", ()):
            print(f"{row['program']}: {line}")
    total = max(1, len(asked))
    print(f"\n{'programs with a cause':34} {len(asked)}")
    for name, number in (
        ("right cause", count["right"]),
        ("right and proved", len(proved)),
        ("wrong", count["wrong"]),
        ("wrong though proved", len(false_proofs)),
        ("abstained (unknown)", count["abstained"]),
        ("no incident", count["no incident"]),
        ("a remedy tried and verified", len(verified)),
    ):
        print(f"{name:34} {number}  {100 * number / total:.0f}%")
    healthy = [r for r in rows if not r["truth"]]
    quiet = sum(r["verdict"] == "healthy" for r in healthy)
    print(f"{'healthy, without any diagnosis':34} {quiet} of {len(healthy)}")
    if costs:
        print(f"{'explaining, in steps (median, most)':34} {statistics.median(costs):.1f}, {max(costs):.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="only programs whose name or cause contains one of them")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--list", action="store_true", help="also those that were right")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--replay", action="store_true", help="without the live trace of a run's first seconds"
    )
    options = parser.parse_args()
    chosen = [truths.read(p) for p in truths.all_programs()]
    if options.words:
        chosen = [t for t in chosen if any(w in t.name or w in (t.cause or "") for w in options.words)]
    chosen = [t for t in chosen if t.needs is None or _has_cuda()]
    extra = ["--audit-seconds", "0", "--audit-share", "0"] if options.replay else []
    nurseries: SimpleQueue[Nursery] = SimpleQueue()
    running = [Nursery().__enter__() for _ in range(options.jobs)]
    for nursery in running:
        nurseries.put(nursery)
    rows = []
    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            for row in pool.map(lambda t: judge(t, nurseries, extra), chosen):
                rows.append(row)
                print(f"\r{len(rows)} of {len(chosen)}", end="", file=sys.stderr, flush=True)
    finally:
        for nursery in running:
            nursery.__exit__()
    print(file=sys.stderr)
    show(rows, options.list)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    main()
