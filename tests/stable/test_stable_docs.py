"""The examples of docs/stable.md run, and its lists name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nanwatch import stable

PAGE = (Path(__file__).parents[2] / "docs" / "stable.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_run(
    example: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NANWATCH_LANG", "en")
    exec(compile(example, "docs/stable.md", "exec"), {})
    assert capsys.readouterr().out in PAGE


def test_every_public_name_is_on_the_page() -> None:
    words = set(re.findall(r"\w+", PAGE))
    assert {*stable.__all__} - words == set()
