"""An independent check of the truths of the public cases. Uses nothing of nanwatch.

    python -m bench.check_truth                        all of bench/cases
    python -m bench.check_truth -v NAME                what the script does, event by event
    python -m bench.check_truth --cases DIR NAME...    another folder

Each script runs in a fresh child, as it is and with its fix applied (`witness.py` says how it is looked at):

- it goes bad in the stated step and in none before: loss, gradients, weights, outputs, or an exception;
- the stated op, on the stated line, in the stated step and module, is among the ops that made something
  non-finite (in backward the line is that of the forward op whose derivative it is). Where no op made the
  value, a variable holds something non-finite after the stated line for the first time;
- with the fix applied it runs to its end, and losses, gradients, weights and outputs are finite throughout;
- a healthy one does so as it is.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from bench.case import CASES, Case, read_all
from bench.fresh_children import import_what, in_children
from bench.witness import testify

HARM = ("loss", "gradient", "weight", "output", "error")
RACES = {"data-race", "transfer-race"}
TRIES = 3
SLOW = 10
ROWS_SHOWN = 12
FITS = {
    "outside": {"loss", "data", "weights", "forward", "optimizer", "backward"},
    "forward": {"forward", "loss", "weights"},
    "optimizer": {"optimizer", "forward", "loss"},
    "backward": {"backward"},
}
"""What a simple look at the stacks calls a phase, and what it may truly be: a closure runs the model inside
the optimizer's step, a criterion is a module, code outside of all modules may be anything."""


def check(case: Case) -> tuple[list[str], list[str]]:
    """(what differs from the truth, what is worth knowing). A race is not lost every time."""
    for _ in range(TRIES if RACES & set(case.causes) else 1):
        wrong, notes = check_once(case)
        if not wrong:
            break
    return wrong, notes


def check_once(case: Case) -> tuple[list[str], list[str]]:
    import_what(case.script)
    seen = ask(case.script, "plain", case.processes)
    if case.healthy:
        return [f"is not healthy: {p}" for p in harm(seen)], []
    wrong, notes = goes_bad(case, seen)
    problem: list[str] = []
    if any(op is not None for op in case.op):
        problem, note = made_by_the_op(case, ask(case.script, "ops", case.processes))
        notes += note
    if None in case.op and (problem or case.op == (None,)):
        problem = arrives_there(case, ask(case.script, "arrivals", case.processes)) + bad_rows(case, seen)
    wrong += problem
    if case.fix:
        wrong += is_fixed(case, seen)
    slowest = max(answer["seconds"] for answer in seen)
    return wrong, [*notes, *([f"takes {slowest} s"] if slowest > SLOW else [])]


def is_fixed(case: Case, seen: list[dict[str, Any]]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "main.py")
        copy.write_text(case.fixed())
        for other in case.folder.iterdir():
            if other.name not in ("main.py", "truth.json", "__pycache__"):
                Path(folder, other.name).symlink_to(other.resolve())
        repaired = ask(copy, "plain", case.processes)
    wrong = [f"with the fix: {p}" for p in harm(repaired)]
    if any(answer["printed"] for answer in repaired) and not harm(seen):
        wrong.append("with the fix it still prints nan or inf")
    return wrong


def ask(script: Path, how: str, processes: int) -> list[dict[str, Any]]:
    """What the witness of each process says."""
    children = in_children(testify, script.resolve(), how, processes=processes)
    dead = [child for child in children if child.result is None]
    if dead:  # one that died by itself says more than those that waited for it
        death = min(dead, key=lambda child: child.hung).death
        raise ChildDied(f"{'under the dispatch mode ' if how == 'ops' else ''}{death}")
    return [child.result for child in children]


class ChildDied(Exception):
    """A script took the process with it, or did not end."""


def step_of(seen: dict[str, Any], trains: bool) -> set[int]:
    """Optimizer steps before it; without an optimizer calls of the model, or backward passes."""
    return {seen["steps"]} if trains else {max(0, seen["calls"]), seen["backwards"]}


def harm(seen: list[dict[str, Any]]) -> list[str]:
    """What was not finite or went wrong, once each, with the first step."""
    found: dict[str, str] = {}
    for answer in seen:
        for entry in answer["seen"]:
            if entry["what"] in HARM:
                detail = f" ({answer['error']})" if entry["what"] == "error" else ""
                step = min(step_of(entry, answer["trains"]))
                found.setdefault(entry["what"], f"{entry['what']}{detail} in step {step}")
    return list(found.values())


def goes_bad(case: Case, seen: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    bad = [[step_of(e, a["trains"]) for e in a["seen"] if e["what"] in HARM] for a in seen]
    firsts = [steps[0] for steps in bad if steps]
    if not firsts:
        if any(a["printed"] for a in seen):
            return [], ["goes bad only in what it prints"]
        return ["does not go bad: losses, gradients, weights, outputs are finite, and it raises nothing"], []
    first = min(firsts, key=min)
    if first & set(case.step):
        return [], []
    said = f"goes bad in step {_either(first)}, the truth says {_either(case.step)}: {'; '.join(harm(seen))}"
    return ([said], []) if min(first) < min(case.step) or None in case.op else ([], [said])


def made_by_the_op(case: Case, seen: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    events = [e | {"trains": a["trains"]} for a in seen for e in a["events"]]
    carried = [e | {"trains": a["trains"]} for a in seen for e in a["carried"]]
    if any(not differences(case, e) for e in events):
        return [], []
    if any(not differences(case, e) for e in carried if e["kind"] == "inf" and e["phase"] != "backward"):
        return [], ["the op hands on an infinity that was there before, such as that of a mask"]
    if not events and "torch.compile" in case.script.read_text():
        return [], ["goes bad only when compiled, and nothing can look at the ops of compiled code"]
    if not events:
        return ["no op made anything non-finite out of finite values under the dispatch mode"], []
    nearest = min(events, key=lambda e: (len(differences(case, e)), e["steps"]))
    return [
        f"no op is as stated; nearest: {told(nearest)}; differs in {', '.join(differences(case, nearest))}"
    ], []


def differences(case: Case, event: dict[str, Any]) -> list[str]:
    same = {
        "op": event["op"] in case.op,
        "line": event["line"] in case.line,
        "phase": bool(FITS[event["phase"]] & set(case.phase)) or _recomputed(case, event),
        "module": bool(_modules(event) & set(case.module)),
        "step": bool(step_of(event, event["trains"]) & set(case.step)),
        "kind": event["kind"] in case.kind or event["kind"] == "raised",
        "samples": case.samples is None or event["rows"] is None or event["rows"] == sorted(case.samples),
    }
    return [name for name, is_same in same.items() if not is_same]


def _recomputed(case: Case, event: dict[str, Any]) -> bool:
    """A checkpointed forward runs again inside backward."""
    return event["phase"] == "backward" and "forward" in case.phase and "Checkpoint" in (event["node"] or "")


def _modules(event: dict[str, Any]) -> set[str | None]:
    """A criterion is a root module of its own: nothing inside of the model, or its root."""
    modules = set(event["modules"])
    return modules | {None, ""} if modules & {None, ""} and event["phase"] != "forward" else modules


def bad_rows(case: Case, seen: list[dict[str, Any]]) -> list[str]:
    """Where no op made the value: the rows that the model was given in that step."""
    entries = [e for a in seen for e in a["seen"] if step_of(e, a["trains"]) & set(case.step)]
    given = [e["rows"] for e in entries if e["what"] == "input" and e["rows"] is not None]
    if case.samples is None or not given or sorted(case.samples) in given:
        return []
    return [f"the model is given bad rows {given[0]}, the truth says {sorted(case.samples)}"]


def arrives_there(case: Case, seen: list[dict[str, Any]]) -> list[str]:
    if all(line is None for line in case.line):
        return []
    lines = {line for answer in seen for line in answer["arrivals"]}
    whole = _statements(case.script)
    if {whole.get(n, n) for n in lines} & {whole.get(n, n) for n in case.line if n is not None}:
        return []
    return [f"nothing non-finite arrives on line {_either(case.line)}, but on {_either(lines) or 'none'}"]


def _statements(script: Path) -> dict[int, int]:
    """Line -> first line of the innermost statement that it belongs to."""
    found: dict[int, int] = {}
    for node in ast.walk(ast.parse(script.read_text())):  # outer ones come first
        if isinstance(node, ast.stmt) and node.end_lineno is not None:
            found.update(dict.fromkeys(range(node.lineno, node.end_lineno + 1), node.lineno))
    return found


def told(event: dict[str, Any]) -> str:
    step = _either(step_of(event, event["trains"]))
    many = len(event["rows"] or ()) > ROWS_SHOWN
    rows = f" rows {event['rows'][:ROWS_SHOWN]}{'…' if many else ''}" if event["rows"] is not None else ""
    node = f" ({event['node']})" if event["node"] else ""
    modules = _either(repr(m) for m in event["modules"])
    where = f"line {event['line']} {event['phase']} {event['op']}{node} module {modules}"
    return f"{where} step {step} {event['kind']}{rows}"


def _either(values: Any) -> str:
    return " or ".join(sorted(map(str, values)))


def show(case: Case) -> None:
    """All that is known, to reason about by hand."""
    import_what(case.script)
    print(f"{case.name}: {case.title}")
    if not case.healthy:
        print(
            f"  truth   line {_either(case.line)} {_either(case.phase)} {_either(case.op)}"
            f" module {_either(map(repr, case.module))} step {_either(case.step)} {_either(case.kind)}"
            f" rows {case.samples}"
        )
    for rank, answer in enumerate(ask(case.script, "plain", case.processes)):
        print(f"  plain   process {rank}: {answer['seconds']} s, {'; '.join(harm([answer])) or 'finite'}")
    for rank, answer in enumerate(ask(case.script, "ops", case.processes)):
        for event in answer["events"][:20]:
            print(f"  event   process {rank}: {told(event | {'trains': answer['trains']})}")
    for answer in ask(case.script, "arrivals", case.processes):
        print(f"  arrives on lines {answer['arrivals']}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="cases whose name contains one of these words")
    parser.add_argument("--cases", type=Path, default=CASES, help="a folder of cases (bench/cases)")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what was seen")
    options = parser.parse_args()
    cases, bad = read_all(options.cases, options.names)
    failed = 0
    for line in bad:
        print(f"BAD  {line}")
    for case in cases:
        try:
            if options.verbose:
                show(case)
            wrong, notes = check(case)
        except ChildDied as death:
            wrong, notes = [str(death)], []
        failed += bool(wrong)
        remark = "".join(f"\n       note: {note}" for note in notes)
        print("\n     ".join([f"{'BAD' if wrong else 'OK':4} {case.name}", *wrong]) + remark, flush=True)
    print(f"{len(cases) - failed} of {len(cases) + len(bad)} truths hold")
    return 1 if failed or bad or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
