"""The public benchmark: every case under nanwatch and under each of its peers, against the known truth.

    python -m bench.run                                     all of bench/cases, all tools
    python -m bench.run --only softmax --tools nanwatch     cases whose name, group or cause contains a word
    python -m bench.run --cases DIR                         your own cases
    python -m bench.run --json F --markdown F --plot F.svg

Each script runs unmodified in a process of its own. What counts as a right answer is in scores.py, how each
tool is applied and read in peers/. A peer gets credit for whatever its output lets a person read off. Cost is
the time of a healthy script that the tool let run to its end, as a multiple of the same script alone, both in
this run: the middle one of all. These scripts are short, and nanwatch traces every op of its first seconds:
`python -m bench.overhead` has the cost of a long training.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", NO_COLOR="1", NANWATCH_LANG="en")

import torch  # noqa: F401  what the children find imported

from bench import scoreboard
from bench.case import CASES, Case, read_all
from bench.fresh_children import LIMIT, import_what, in_children
from bench.peers import TOOLS
from bench.peers.launching import launch
from bench.peers.said import Said
from bench.scores import better_peers, judge, misses, table

PACKAGES = ("torch", "transformers", "lightning", "accelerate")


def run_case(case: Case, tools: list[str]) -> list[dict[str, Any]]:
    """A row for each tool that can serve the script."""
    import_what(case.script)
    for name in (name for tool in tools for name in TOOLS[tool].IMPORTS):
        importlib.import_module(name)
    dies, alone, _ = run_tool(case, "python_alone")
    rows = []
    for tool in tools:
        if TOOLS[tool].applies(case.script):
            said, seconds, died = run_tool(case, tool)
            if said.detected and said.phase is None and not (dies.detected or case.healthy):
                said = Said(words=f"broke the script: {said.words}")  # an error that is the tool's, no alarm
            right = judge(case, said)
            to_the_end = case.healthy and alone and seconds and not right["alarm"]
            rows.append(
                {
                    "case": case.name,
                    "group": case.group,
                    "healthy": case.healthy,
                    "tool": tool,
                    "right": right,
                    "said": asdict(said),
                    "summary": summary(said),
                    "truth": "healthy" if case.healthy else truth(case),
                    "cost": seconds / alone if to_the_end else None,
                    "died": died,
                }
            )
    return rows


def run_tool(case: Case, tool: str) -> tuple[Said, float | None, str | None]:
    """What it said, the seconds of the script's slowest process, and how a process died that did."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        if case.processes > 1:
            output, seconds, died = by_torchrun(case, tool, place)
        else:
            (child,) = in_children(launch, TOOLS[tool], case.script.resolve(), place)
            died = child.death if child.result is None else None
            output, seconds = child.output, None if died else child.result["seconds"]
        return TOOLS[tool].read_off(output, place), seconds, died


def by_torchrun(case: Case, tool: str, place: Path) -> tuple[str, float | None, str | None]:
    """Several processes, started as a user starts them; the output is that of the one that says most."""
    logs = place / "logs"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--redirects", "3", "--log-dir"]
    command += [str(logs), "--nproc-per-node", str(case.processes)]
    command += ["-m", "bench.peers", tool, str(case.script.resolve()), str(place)]
    root = Path(__file__).resolve().parents[1]
    died = None
    try:
        subprocess.run(command, cwd=root, capture_output=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        died = f"did not end within {LIMIT} seconds"
    ranks = {file.parent for file in logs.rglob("std*.log")}
    outputs = [
        "".join(f.read_text(errors="replace") for f in sorted(rank.glob("std*.log"))) for rank in ranks
    ]
    output = max(outputs, key=lambda text: _how_much(TOOLS[tool].read_off(text, place)), default="")
    seconds = [json.loads(file.read_text())["seconds"] for file in place.glob("launched-*.json")]
    return output, max(seconds, default=None), died


def _how_much(said: Said) -> int:
    """A process that only lost its neighbours says less than the one that named the place."""
    return said.detected + 2 * (said.phase is not None)


def summary(said: Said) -> str:
    if not said.detected:
        return said.words or "nothing"
    cause = f" {said.cause} ({said.certainty})" if said.cause else ""
    return f"{said.phase} {said.op or said.node} line {said.line} module {said.module!r}{cause}: {said.words}"


def truth(case: Case) -> str:
    several = (case.phase, case.op, case.line, map(repr, case.module), case.causes)
    phase, op, line, module, cause = (" or ".join(map(str, values)) for values in several)
    return f"{phase} {op} line {line} module {module} {cause}"


def versions() -> dict[str, str]:
    found = {"nanwatch": importlib.metadata.version("nanwatch"), "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def make_report(cases: list[Case], rows: list[dict[str, Any]], tools: list[str]) -> dict[str, Any]:
    found = table(rows, {tool: TOOLS[tool].LABEL for tool in tools})
    return {
        "date": datetime.date.today().isoformat(),
        "versions": versions(),
        "bad": sum(not case.healthy for case in cases),
        "healthy": sum(case.healthy for case in cases),
        "table": found,
        "better": better_peers(found),
        "misses": misses(rows, "nanwatch"),
        "rows": sorted(rows, key=lambda row: (row["case"], tools.index(row["tool"]))),
    }


def run_all(cases: list[Case], tools: list[str], jobs: int) -> tuple[list[Case], list[dict[str, Any]]]:
    """The cases that were run and their rows; after Ctrl-C those that are done."""
    rows: list[dict[str, Any]] = []
    finished: list[Case] = []
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, mp_context=fork) as pool:
        waiting = {pool.submit(run_case, case, tools): case for case in cases}
        try:
            for done in as_completed(waiting):
                rows += done.result()
                finished.append(waiting[done])
                progress = f"{len(finished)} of {len(cases)}  {waiting[done].name:40}"
                print(f"\r{progress}", end="", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
    print(file=sys.stderr)
    return finished, rows


def show(report: dict[str, Any]) -> None:
    print(scoreboard.markdown(report))
    for row in report["rows"]:
        if row["died"]:
            print(f"{row['case']} under {row['tool']}: {row['died']}")
    if any(row["tool"] == "nanwatch" for row in report["rows"]):
        print(f"nanwatch was not right in all on {len(report['misses'])} cases:")
        print("\n".join(f"  {line}" for line in report["misses"]))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=Path, default=CASES, help="a folder of cases (bench/cases)")
    parser.add_argument("--only", default="", metavar="WORD", help="cases whose name, group or cause has it")
    parser.add_argument("--tools", default=",".join(TOOLS), help=f"of {', '.join(TOOLS)}")
    parser.add_argument("--json", type=Path, metavar="F", help="everything that was found")
    parser.add_argument("--markdown", type=Path, metavar="F", help="the table")
    parser.add_argument("--plot", type=Path, metavar="F.svg", help="the picture")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    tools = options.tools.split(",")
    for tool in tools:
        if tool not in TOOLS:
            parser.error(f"--tools {tool}: no such tool; there are {', '.join(TOOLS)}")
    if options.plot is not None and options.plot.suffix != ".svg":
        parser.error(f"--plot {options.plot}: only .svg is written")
    cases, bad = read_all(options.cases)
    for line in bad:
        print(f"left out: {line}", file=sys.stderr)
    cases = [
        c for c in cases if any(options.only in word for word in (c.name, c.group, c.cause or "healthy"))
    ]
    if not cases:
        print(f"no case in {options.cases} to run", file=sys.stderr)
        return 2
    finished, rows = run_all(cases, tools, options.jobs)
    if not rows:
        return 130
    report = make_report(finished, rows, tools)
    show(report)
    for file, text in (
        (options.json, json.dumps(report, indent=1)),
        (options.markdown, scoreboard.markdown(report)),
        (options.plot, scoreboard.svg(report)),
    ):
        if file is not None:
            file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
