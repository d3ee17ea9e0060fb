"""The benchmark's table as Markdown and as a picture."""

from __future__ import annotations

from html import escape
from typing import Any

from bench.scores import QUESTIONS

HEADS = {"detected": "detected", "fix": "verified fix"}
COLOURS = ("#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#66a61e", "#e6ab02", "#a6761d", "#666666")
LEFT, TOP, HEIGHT, GROUP, BAR = 50, 60, 240, 150, 15


def markdown(report: dict[str, Any]) -> str:
    """The table, with what it was made of and with."""
    heads = ["", *(HEADS.get(q, f"right {q}") for q in QUESTIONS), "false alarms", "cost"]
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |"]
    for row in report["table"]:
        shares = [_share(row[q], row["bad"]) for q in QUESTIONS]
        alarms = f"{row['alarms']} of {row['healthy']}" if row["healthy"] else "-"
        cost = f"x{row['cost']:.2f}" if row["cost"] else "-"
        lines.append(f"| {' | '.join([row['label'], *shares, alarms, cost])} |")
    few = [row for row in report["table"] if row["bad"] < report["bad"]]
    notes = [f"{row['label']} can serve {row['bad']} of the bad cases." for row in few]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    made = f"{report['bad']} bad and {report['healthy']} healthy scripts, {report['date']}, {versions}."
    return "\n".join([*lines, "", made, *notes, *(f"{line}." for line in report["better"]), ""])


def _share(number: int, total: int) -> str:
    return f"{100 * number / total:.0f}%" if total else "-"


def svg(report: dict[str, Any]) -> str:
    """Bars: for each question the share of the bad cases that each tool answered rightly."""
    rows = [row for row in report["table"] if row["bad"]]
    width = LEFT + len(QUESTIONS) * GROUP + 20
    height = TOP + HEIGHT + 50 + 20 * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="16">{report["bad"]} scripts that go NaN or Inf: share answered '
        "rightly (%)</text>",
    ]
    for percent in range(0, 101, 25):
        y = TOP + HEIGHT * (1 - percent / 100)
        parts.append(f'<line x1="{LEFT}" x2="{width - 20}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{percent}</text>')
    for place, question in enumerate(QUESTIONS):
        x = LEFT + place * GROUP + 10
        label = HEADS.get(question, f"right {question}")
        parts.append(f'<text x="{x}" y="{TOP + HEIGHT + 20}">{label}</text>')
        for index, row in enumerate(rows):
            tall = HEIGHT * row[question] / row["bad"]
            tip = f"{row['label']}: {label} {row[question]} of {row['bad']}"
            place_of_bar = f'x="{x + index * BAR}" y="{TOP + HEIGHT - tall:.1f}"'
            size = f'width="{BAR - 2}" height="{tall:.1f}" fill="{COLOURS[index % len(COLOURS)]}"'
            parts.append(f"<rect {place_of_bar} {size}><title>{escape(tip)}</title></rect>")
    for index, row in enumerate(rows):
        y = TOP + HEIGHT + 45 + 20 * index
        colour = COLOURS[index % len(COLOURS)]
        parts.append(f'<rect x="{LEFT}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        text = f"{row['label']}: {row['alarms']} false alarms on {row['healthy']} healthy scripts"
        parts.append(f'<text x="{LEFT + 20}" y="{y}">{escape(text.replace("`", ""))}</text>')
    return "\n".join([*parts, "</svg>", ""])
