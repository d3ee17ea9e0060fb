"""`nanwatch explain`: the list, a page, an incident again; and docs/causes.md is made of the same text."""

from __future__ import annotations

from pathlib import Path

import pytest
from workshop import Workshop

from nanwatch.cli.explain import all_pages
from nanwatch.explain.causes import CAUSES, IDS

DOCS = Path(__file__).parents[2] / "docs"
PROGRAMS = Path(__file__).parents[1] / "cases" / "programs"


def test_the_documentation_is_the_pages() -> None:
    """`NANWATCH_LANG=en nanwatch explain --markdown > docs/causes.md`, zh for causes.zh.md."""
    assert (DOCS / "causes.md").read_text() == all_pages("en")
    assert (DOCS / "causes.zh.md").read_text() == all_pages("zh")


@pytest.mark.parametrize("identity", IDS)
def test_every_page_is_whole(identity: str) -> None:
    page = CAUSES[identity].PAGE
    for text in (page.title, page.meaning, page.proof, page.cures):
        assert text.en.strip() and text.zh.strip() and text.en != text.zh
        assert any("\u4e00" <= letter <= "\u9fff" for letter in text.zh)
    assert page.examples
    for example in page.examples:
        assert (PROGRAMS / f"{example}.py").exists(), example


def test_list_page_and_incident(workshop: Workshop) -> None:
    listed = workshop.nanwatch("explain")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(IDS)
    page = workshop.nanwatch("explain", "fully-masked-row")
    assert page.stdout.startswith("fully-masked-row: ") and "Proved by:" in page.stdout
    workshop.write(
        "bad.py", "import torch\nnet = torch.nn.Linear(2, 2)\nnet(torch.tensor([[0.0, 2.0]]).log())\n"
    )
    first = workshop.nanwatch("run", "--checklist", "--dir", "run", "bad.py")
    assert first.returncode == 3 and "✗ Is the data clean?" in first.stderr
    again = workshop.nanwatch("explain", "--checklist", "run")
    assert again.returncode == 0
    assert "aten.log" in again.stdout and "Is the data clean?" in again.stdout
    report = first.stderr[first.stderr.index("\nChecklist\n") :]
    assert report.strip() == again.stdout[again.stdout.index("\nChecklist\n") :].strip()
    assert report.count("  ✗ ") + report.count("  ✓ ") + report.count("  ? ") == 7 + 5
    assert "✗ Shrink the model. The op aten.log.default alone" in report
    assert "\n  1. log-of-zero (proved): " in report and "\nWhat to do, in order\n  1. " in report


def test_a_word_that_is_nothing(workshop: Workshop) -> None:
    wrong = workshop.nanwatch("explain", "fully-masked")
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1 and "Did you mean: fully-masked-row" in wrong.stderr
    assert workshop.nanwatch("explain", "--twice").returncode == 2


def test_a_run_without_an_incident(workshop: Workshop) -> None:
    workshop.write("good.py", "import torch\ntorch.nn.Linear(2, 2)(torch.ones(1, 2))\n")
    assert workshop.nanwatch("run", "--dir", "run", "good.py").returncode == 0
    nothing = workshop.nanwatch("explain", "run")
    assert nothing.returncode == 2
    assert (
        nothing.stderr
        == "nanwatch: the run in run has no incident: nothing in it was found to be non-finite.\n"
    )
