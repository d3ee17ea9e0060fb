"""Every program in `programs/`, run unmodified under `nanwatch run`, against its known truth."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import truth as truths

LIMIT = 120
REPLAYED = {"forward", "loss", "backward", "optimizer"}
PATHS = truths.all_programs()
BAD = [p for p in PATHS if not p.stem.startswith("healthy")]
HEALTHY = [p for p in PATHS if p.stem.startswith("healthy")]


def call(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", NO_COLOR="1")
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def watched(path: Path, tmp_path: Path) -> tuple[subprocess.CompletedProcess[str], Path]:
    folder = tmp_path / "run"
    return call("-m", "nanwatch", "run", "--dir", folder, path, cwd=tmp_path), folder


def shows(text: str, kind: str) -> bool:
    return re.search(rf"(?<![a-z]){kind}(?![a-z])", text.lower()) is not None


def test_there_are_enough_programs() -> None:
    assert len(BAD) >= 60 and len(HEALTHY) >= 15


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_truth_is_well_formed(path: Path) -> None:
    truth = truths.read(path)  # exactly one truth block, exactly one BIRTH marker in a bad one
    assert truth.healthy == path.stem.startswith("healthy")
    assert truth.exit == (0 if truth.healthy else 3)
    assert "nanwatch" not in path.read_text()


@pytest.mark.parametrize("path", BAD, ids=lambda p: p.stem)
def test_bad_program(path: Path, tmp_path: Path) -> None:
    truth = truths.read(path)
    done, folder = watched(path, tmp_path)
    output = f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == truth.exit, output
    incident_folder = folder / "incidents" / "0001"
    incident = json.loads((incident_folder / "incident.json").read_text())
    birth = incident["birth"]
    found = {
        "phase": incident["phase"],
        "op": birth["op"],
        "line": birth["line"],
        "file": birth["file"] and Path(birth["file"]).name,
        "module": birth["module"],
        "step": incident["step"],
        "kind": incident["kind"],
    }
    accepted = {
        "phase": truth.phase,
        "op": truth.op,
        "line": (truth.line,),
        "file": (path.name,),
        "module": truth.module,
        "step": truth.step,
        "kind": truth.kind,
    }
    if truth.samples is not None:
        found["samples"] = tuple(birth["samples"])
        accepted["samples"] = (truth.samples,)
    wrong = {
        field: f"found {found[field]!r}, true is {' or '.join(map(repr, accepted[field]))}"
        for field in accepted
        if found[field] not in accepted[field]
    }
    assert not wrong, output

    repro = incident_folder / "repro.py"
    if birth["op"] is not None and incident["phase"] in REPLAYED:
        assert repro.exists()
    if repro.exists():
        again = call(repro, cwd=tmp_path)
        assert again.returncode == 0, again.stderr[-3000:]
        assert shows(again.stdout, incident["kind"]), again.stdout[-3000:]


@pytest.mark.parametrize("path", HEALTHY, ids=lambda p: p.stem)
def test_healthy_program(path: Path, tmp_path: Path) -> None:
    done, folder = watched(path, tmp_path)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    incidents = folder / "incidents"
    assert not incidents.exists() or not list(incidents.iterdir()), done.stderr[-4000:]
    plain = call(path, cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr[-2000:]
    assert done.stdout == plain.stdout
