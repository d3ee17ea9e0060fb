"""Every program in `programs/`, run unmodified under `nanwatch run`, against its known truth."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import truth as truths
from nursery import Nursery

from nanwatch.explain.causes import CAUSES
from nanwatch.messages import say_in

REPLAYED = {"forward", "loss", "backward", "optimizer"}
ONLY_SEEN_LIVE = {
    "fwd_half_norm_silent_zero": "no NaN ever shows: only the audit can see it",
    "infer_continuous_batching": "the model overwrites the cache that it was given: the report says so",
    "infer_diffusion_sampler": "made in sampling code whose operands are gone when the output shows it",
    "fwd_counter_of_a_class": "what a class counts is not on record: the replay counts on",
    "opt_momentum_from_a_file": "afterwards the update is known, not which of its ops",
    "opt_heavy_ball": "the optimizer makes its state once: when the loss shows it, it is there already",
}
STAND_INS = say_in(
    "en", "watch.update_made_again"
)  # op and line are found; the values are not those of the update
DOES_NOT_REPEAT = {"transient-fault", "data-race", "transfer-race"}  # nobody can find the op afterwards
PATHS = truths.all_programs()
FIRST_EXAMPLES = {page.PAGE.examples[0]: cause for cause, page in CAUSES.items()}
BAD = [p for p in PATHS if not p.stem.startswith("healthy")]
HEALTHY = [p for p in PATHS if p.stem.startswith("healthy")]


def skip_without(needs: str | None) -> None:
    if needs == "cuda":
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")


def watched(
    nursery: Nursery, path: Path, tmp_path: Path, *options: str
) -> tuple[subprocess.CompletedProcess[str], Path]:
    folder = tmp_path / "run"
    return nursery.run(["-m", "nanwatch", "run", "--dir", str(folder), *options, str(path)], tmp_path), folder


def shows(text: str, kind: str) -> bool:
    return re.search(rf"(?<![a-z]){kind}(?![a-z])", text.lower()) is not None


def test_every_page_has_a_first_example_of_its_own() -> None:
    assert len(FIRST_EXAMPLES) == len(CAUSES) and FIRST_EXAMPLES.keys() <= {path.stem for path in BAD}


def test_there_are_enough_programs() -> None:
    assert len(BAD) >= 60 and len(HEALTHY) >= 15


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_truth_is_well_formed(path: Path) -> None:
    truth = truths.read(path)  # exactly one truth block, exactly one BIRTH marker in a bad one
    assert truth.healthy == path.stem.startswith("healthy")
    assert truth.exit == (0 if truth.healthy else 3)
    assert "nanwatch" not in path.read_text()


def differences(truth: truths.Truth, incident: dict[str, Any]) -> dict[str, str]:
    """Field -> found and true, for every field in which the incident is not exact."""
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
    accepted: dict[str, tuple[Any, ...]] = {
        "phase": truth.phase,
        "op": truth.op,
        "line": (truth.line, truth.other_line) if truth.other_line else (truth.line,),
        "file": (truth.path.name,),
        "module": truth.module,
        "step": truth.step,
        "kind": truth.kind,
    }
    if truth.samples is not None:
        found["samples"] = tuple(birth["samples"])
        accepted["samples"] = (truth.samples,)
    return {
        field: f"found {found[field]!r}, true is {' or '.join(map(repr, accepted[field]))}"
        for field in accepted
        if found[field] not in accepted[field]
    }


def replayed() -> list[Any]:
    """Those that are only for the replay and every sixth of the others now, the rest with `make test-all`."""
    found = []
    for path in BAD:
        only = path.stem.startswith("replay")
        if only or truths.read(path).phase[0] in REPLAYED:
            now = only or zlib.crc32(path.stem.encode()) % 6 == 0
            found.append(pytest.param(path, id=path.stem, marks=[] if now else pytest.mark.slow))
    return found


@pytest.mark.parametrize("path", replayed())
def test_bad_program_without_live_trace(path: Path, tmp_path: Path, nursery: Nursery) -> None:
    """As after the first seconds of a long run: nothing was traced, the step is run again."""
    if path.stem in ONLY_SEEN_LIVE:
        pytest.skip(ONLY_SEEN_LIVE[path.stem])
    truth = truths.read(path)
    skip_without(truth.needs)
    done, folder = watched(
        nursery, path, tmp_path, "--audit-seconds", "0", "--audit-share", "0", "--no-explain"
    )
    assert done.returncode == truth.exit, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    incident = json.loads((folder / "incidents" / "0001" / "incident.json").read_text())
    if truth.cause not in DOES_NOT_REPEAT:
        wrong = differences(truth, incident)
        if STAND_INS in incident["notes"]:
            wrong.pop("kind", None)
        assert not wrong, done.stderr[-4000:]


def explained_or_not() -> list[Any]:
    """The first example on each cause's page and every third of the others are explained now, the rest only
    located; with `make test-all` all are explained."""
    found = []
    for path in BAD:
        now = path.stem in FIRST_EXAMPLES or zlib.crc32(path.stem.encode()) % 3 == 1
        marks = [] if now else [pytest.mark.slow]
        found.append(pytest.param(path, True, id=f"{path.stem}-explained", marks=marks))
        if not now:
            found.append(pytest.param(path, False, id=path.stem))
    return found


@pytest.mark.parametrize(("path", "explained"), explained_or_not())
def test_bad_program(path: Path, explained: bool, tmp_path: Path, nursery: Nursery) -> None:
    truth = truths.read(path)
    skip_without(truth.needs)
    done, folder = watched(nursery, path, tmp_path, *([] if explained else ["--no-explain"]))
    output = f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == truth.exit, output
    incident_folder = folder / "incidents" / "0001"
    incident = json.loads((incident_folder / "incident.json").read_text())
    repeats = truth.cause not in DOES_NOT_REPEAT or incident["located_by"] != "recorded facts"
    if repeats:
        assert not differences(truth, incident), output

    cause = incident["cause"]
    if explained and cause["certainty"] == "proved":
        assert cause["id"] in truth.causes, cause
    if explained and path.stem in FIRST_EXAMPLES:
        assert cause["id"] == FIRST_EXAMPLES[path.stem] and cause["id"] in truth.causes, cause
        assert cause["certainty"] != "unknown" and cause["why"], cause

    repro = incident_folder / "repro.py"
    if repeats and None not in truth.op and incident["phase"] in REPLAYED:  # memory nobody wrote has no repro
        assert repro.exists()
    if repro.exists():
        again = nursery.run([str(repro)], tmp_path)
        assert again.returncode == 0, again.stderr[-3000:]
        assert shows(again.stdout, incident["kind"]), again.stdout[-3000:]


@pytest.mark.parametrize("path", HEALTHY, ids=lambda p: p.stem)
def test_healthy_program(path: Path, tmp_path: Path, nursery: Nursery) -> None:
    done, folder = watched(nursery, path, tmp_path, *truths.read(path).options)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    incidents = folder / "incidents"
    assert not incidents.exists() or not list(incidents.iterdir()), done.stderr[-4000:]
    plain = nursery.run([str(path)], tmp_path)
    assert plain.returncode == 0, plain.stderr[-2000:]
    assert done.stdout == plain.stdout


@pytest.mark.parametrize("path", HEALTHY, ids=lambda p: p.stem)
def test_healthy_program_without_live_trace(path: Path, tmp_path: Path, nursery: Nursery) -> None:
    options = ("--audit-seconds", "0", "--audit-share", "0", *truths.read(path).options)
    done, folder = watched(nursery, path, tmp_path, *options)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    incidents = folder / "incidents"
    assert not incidents.exists() or not list(incidents.iterdir()), done.stderr[-4000:]
