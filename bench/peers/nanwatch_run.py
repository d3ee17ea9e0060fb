"""nanwatch run, as it is."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.peers.said import NOTHING, Said

LABEL = "nanwatch"
IMPORTS = ("nanwatch.cli.main", "nanwatch.adapters.plain", "safetensors.torch")


def applies(script: Path) -> bool:
    return True


@contextlib.contextmanager
def watching(script: Path, folder: Path) -> Iterator[Callable[[], None]]:
    from nanwatch.cli.main import main

    yield lambda: main(["run", "--dir", str(folder / "run"), str(script)])


def read_off(output: str, folder: Path) -> Said:
    incidents = [json.loads(f.read_text()) for f in sorted(folder.glob("run/incidents/*/incident.json"))]
    if not incidents:
        return NOTHING
    found = min(incidents, key=_order)
    birth, cause = found["birth"], found["cause"]
    here = birth["file"] is not None and Path(birth["file"]).name == "main.py"
    own = [f["line"] for f in birth["stack"] if Path(f["file"]).name == "main.py"]
    return Said(
        detected=True,
        phase=found["phase"],
        op=birth["op"],
        line=birth["line"] if here else (own[-1] if own else None),
        module=birth["module"],
        named_module=True,
        cause=cause["id"],
        certainty=cause["certainty"],
        verified_fix=any(r["verified"] for r in found["remedies"]),
        words=cause["why"] or next((line for line in output.splitlines() if "error of its own" in line), ""),
    )


def _order(incident: dict[str, Any]) -> tuple[int, bool, bool]:
    """The first one; of several processes, the one that names the cause, and not one that got the value."""
    return incident["step"], incident["cause"]["id"] == "unknown", incident["birth"]["line"] is None
