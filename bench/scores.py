"""What a tool said, against the truth of the case: right or not, and the sums of it for a table."""

from __future__ import annotations

import statistics
from typing import Any

from bench.case import Case
from bench.peers.said import Said

QUESTIONS = ("detected", "phase", "op", "line", "module", "cause", "fix")


def judge(case: Case, said: Said) -> dict[str, bool]:
    """For a bad case: each question, right or not. For a healthy one: whether it was an alarm."""
    if case.healthy:
        return {"alarm": said.detected}
    right = said.detected
    line = right and said.line in case.line
    return {
        "detected": right,
        "phase": right and said.phase in case.phase,
        "op": right and _right_op(case, said, line),
        "line": line,
        "module": right and said.named_module and _right_module(case, said),
        "cause": right and said.cause in case.causes,
        "fix": right and said.verified_fix,
    }


def _right_op(case: Case, said: Said, right_line: bool) -> bool:
    """A backward function serves as a name for the op on its line, and for the op whose derivative it is."""
    if said.node is not None:
        function = said.node.lower().removesuffix("0").removesuffix("backward")
        names = {_base(op) for op in case.op if op is not None}
        return (said.phase in case.phase and right_line) or function in names
    if said.op is None:
        return None in case.op and said.cause is not None
    return any(
        op is not None and op.removesuffix(".default") == said.op.removesuffix(".default") for op in case.op
    )


def _base(op: str) -> str:
    return op.split(".")[1].replace("_", "")


def _right_module(case: Case, said: Said) -> bool:
    """The root of a criterion is as good as no module; wrappers put their own name in front."""
    name = said.module
    for wrapper in ("module.", "_orig_mod."):
        name = name.removeprefix(wrapper) if name else name
    return name in case.module or (not name and "loss" in case.phase and bool({None, ""} & set(case.module)))


def table(rows: list[dict[str, Any]], labels: dict[str, str]) -> list[dict[str, Any]]:
    """One line for each tool: how many of the cases that it can serve it got right, and what it cost."""
    found = []
    for tool, label in labels.items():
        mine = [row for row in rows if row["tool"] == tool]
        bad = [row for row in mine if not row["healthy"]]
        healthy = [row for row in mine if row["healthy"]]
        costs = [row["cost"] for row in mine if row["cost"] is not None]
        found.append(
            {
                "tool": tool,
                "label": label,
                "bad": len(bad),
                "healthy": len(healthy),
                **{q: sum(row["right"][q] for row in bad) for q in QUESTIONS},
                "alarms": sum(row["right"]["alarm"] for row in healthy),
                "cost": round(statistics.median(costs), 2) if costs else None,
            }
        )
    return found


def misses(rows: list[dict[str, Any]], tool: str) -> list[str]:
    """A line for each case in which a tool was not right in all, sorted by what was wrong first."""
    lines = []
    for question in (*QUESTIONS, "alarm"):
        for row in rows:
            right = row["right"]
            first = (
                "alarm" if right.get("alarm") else next((q for q in QUESTIONS if right.get(q) is False), None)
            )
            if row["tool"] == tool and first == question:
                wrong = ["false alarm"] if question == "alarm" else [q for q in QUESTIONS if not right[q]]
                lines.append(
                    f"{row['case']}: {', '.join(wrong)}: said {row['summary']}; truth {row['truth']}"
                )
    return lines


def better_peers(found: list[dict[str, Any]], tool: str = "nanwatch") -> list[str]:
    """Where another tool did better than this one; a share of the cases that each can serve."""
    mine = next((row for row in found if row["tool"] == tool), None)
    lines = []
    for row in found:
        if mine is None or row is mine or not row["bad"] or not mine["bad"]:
            continue
        ahead = [q for q in QUESTIONS if row[q] / row["bad"] > mine[q] / mine["bad"]]
        if (
            row["healthy"]
            and mine["healthy"]
            and row["alarms"] / row["healthy"] < mine["alarms"] / mine["healthy"]
        ):
            ahead.append("false alarms")
        if row["cost"] and mine["cost"] and row["cost"] < mine["cost"]:
            ahead.append("cost")
        if ahead:
            lines.append(f"{row['label']} is better in: {', '.join(ahead)}")
    return lines
