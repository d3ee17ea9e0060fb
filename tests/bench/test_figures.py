"""The figures in the documents are what the benchmark scripts printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.figures import DOCUMENTS, MARKED, with_figures


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_documents_show_the_kept_runs_as_they_are(document: Path) -> None:
    text = document.read_text()
    assert MARKED.search(text)
    assert with_figures(text) == text, "run `python -m bench.figures`"


def test_both_languages_show_the_same_runs() -> None:
    shown = {d.name: [found[1] for found in MARKED.findall(d.read_text())] for d in DOCUMENTS}
    assert shown["README.md"] == shown["README.zh.md"]


def test_a_run_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x1.01\n")
    (tmp_path / "b.md").write_text("| x |\n")
    text = (
        "Cost:\n<!-- figures: a.txt -->\nold\n<!-- /figures -->\nand\n"
        "<!-- figures: b.md -->\n<!-- /figures -->\n"
    )
    assert with_figures(text, tmp_path) == (
        "Cost:\n<!-- figures: a.txt -->\n```text\nx1.01\n```\n<!-- /figures -->\nand\n"
        "<!-- figures: b.md -->\n| x |\n<!-- /figures -->\n"
    )
