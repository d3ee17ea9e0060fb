"""Settings of a training that stays finite, as Python files to start from: one template per framework.

In a template `#+ name` stands for a shared part, `#: name` for the comment `config.name` of the catalogue,
wrapped where it stands, and `@NAME@` for a value.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from unicodedata import east_asian_width

from nanwatch.act.configurations.shared_parts import PARTS
from nanwatch.messages import say_in

FRAMEWORKS = ("plain", "accelerate", "trainer", "lightning")
WIDTH = 100


@dataclass(frozen=True)
class Wishes:
    """What the user may choose. The defaults are on the careful side."""

    learning_rate: float
    clip_norm: float
    total_steps: int
    warmup_steps: int


def configuration(framework: str, language: str, wishes: Wishes) -> str:
    """The text of the file."""
    template: str = importlib.import_module(f"nanwatch.act.configurations.{framework}").TEMPLATE
    template = re.sub(r"^#\+ (\w+)\n", lambda found: PARTS[found[1]], template, flags=re.MULTILINE)
    values = {
        "LEARNING_RATE": repr(wishes.learning_rate),
        "CLIP_NORM": repr(wishes.clip_norm),
        "TOTAL_STEPS": str(wishes.total_steps),
        "WARMUP_STEPS": str(wishes.warmup_steps),
        "SAY_EMPTY": say_in(language, "config.empty"),
    }
    lines: list[str] = []
    for line in template.splitlines():
        mark = re.fullmatch(r"( *)#: (\w+)", line)
        if mark:
            lines += _comment(say_in(language, f"config.{mark[2]}"), mark[1] + "# ")
        else:
            lines.append(re.sub(r"@([A-Z_]+)@", lambda found: values[found[1]], line))
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str) -> list[str]:
    """Wrapped at WIDTH columns. Between Chinese characters a line may end anywhere, but not before a stop."""
    lines = [indent]
    for piece in re.findall(r"[!-~]+ ?|.[，。；：、）！？]*", text):
        if _columns(lines[-1] + piece.rstrip()) > WIDTH and lines[-1] != indent:
            lines.append(indent)
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def _columns(text: str) -> int:
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)
