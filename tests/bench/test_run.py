"""`python -m bench.run` on three small cases: the table, and what each tool is credited with."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest
from small_cases import BAD, GRADIENT, GRADIENT_TRUTH, HEALTHY, HEALTHY_TRUTH, TRUTH, write

from bench.case import read
from bench.peers.said import Said
from bench.scores import judge

ROOT = Path(__file__).resolve().parents[2]
TOOLS = "nanwatch,detect_anomaly,module_hooks,debug_mode,python_alone"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.run", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str, Path]:
    folder = tmp_path_factory.mktemp("made")
    write(folder / "cases", "bad", BAD, TRUTH)
    write(folder / "cases", "gradient", GRADIENT, {**GRADIENT_TRUTH, "op": "aten.div.Tensor"})
    write(folder / "cases", "healthy", HEALTHY, HEALTHY_TRUTH)
    write(folder / "cases", "nonsense", BAD, "{}")
    files = ("--json", folder / "r.json", "--markdown", folder / "r.md", "--plot", folder / "r.svg")
    done = run("--cases", folder / "cases", "--tools", TOOLS, *files)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "r.json").read_text()), done.stdout, done.stderr, folder


def row(report: dict[str, Any], case: str, tool: str) -> dict[str, Any]:
    (found,) = [r for r in report["rows"] if (r["case"], r["tool"]) == (case, tool)]
    return found


def test_nanwatch_is_right_in_all(made: tuple[dict[str, Any], str, str, Path]) -> None:
    report = made[0]
    for case in ("bad", "gradient"):
        assert all(row(report, case, "nanwatch")["right"].values()), row(report, case, "nanwatch")["summary"]
    assert row(report, "healthy", "nanwatch")["right"] == {"alarm": False}
    assert report["misses"] == []


def test_peers_get_credit_for_what_they_show(made: tuple[dict[str, Any], str, str, Path]) -> None:
    report = made[0]
    anomaly = row(report, "gradient", "detect_anomaly")["right"]
    assert anomaly["detected"] and anomaly["phase"] and anomaly["line"] and anomaly["op"]
    assert not anomaly["cause"] and not anomaly["fix"] and not anomaly["module"]
    hook = row(report, "bad", "module_hooks")["right"]
    assert hook["detected"] and hook["phase"] and hook["module"] and not hook["line"] and not hook["op"]
    log = row(report, "bad", "debug_mode")["right"]
    assert log["detected"] and log["phase"] and log["op"] and log["line"] and log["module"]
    assert not row(report, "bad", "python_alone")["right"]["detected"]


def test_the_table_is_written_in_three_forms(made: tuple[dict[str, Any], str, str, Path]) -> None:
    report, out, err, folder = made
    assert [r["tool"] for r in report["table"]] == TOOLS.split(",")
    assert (report["bad"], report["healthy"]) == (2, 1)
    assert report["table"][0]["line"] == 2 and report["table"][0]["alarms"] == 0
    assert report["table"][0]["cost"] > 0
    assert "| nanwatch | 100% | 100% | 100% | 100% | 100% | 100% | 100% | 0 of 1 |" in out
    assert (folder / "r.md").read_text() in out
    assert all(report["versions"][name] for name in ("nanwatch", "Python", "torch"))
    picture = xml.etree.ElementTree.parse(folder / "r.svg").getroot()
    bars = [e for e in picture.iter() if e.tag.endswith("title")]
    assert len(bars) == 7 * len(TOOLS.split(","))
    assert "left out: nonsense/truth.json: lacks" in err and "3 of 3" in err


def test_bad_use_is_said(tmp_path: Path) -> None:
    done = run("--tools", "crystal_ball")
    assert done.returncode == 2 and "--tools crystal_ball: no such tool" in done.stderr
    done = run("--cases", tmp_path / "nowhere")
    assert done.returncode == 2 and "no such folder" in done.stderr


def test_a_wrong_answer_gets_no_credit(tmp_path: Path) -> None:
    case = read(write(tmp_path, "bad", BAD, {**TRUTH, "also": ["bad-input"]}))
    right = Said(True, "forward", "aten.div.Tensor", None, 14, "", True, "bad-input", "proved", True)
    assert all(judge(case, right).values())
    wrong = Said(True, "loss", "aten.log.default", None, 13, "fc", True, "overflow", "proved", False)
    assert [name for name, is_right in judge(case, wrong).items() if is_right] == ["detected"]
    assert not any(judge(case, Said()).values())
    assert not judge(case, Said(True))["module"]  # said nothing about a module: not the root
