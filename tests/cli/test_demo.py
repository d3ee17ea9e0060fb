"""`nanwatch demo`: the list, the programs, and one clear line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from workshop import Workshop

from nanwatch.cli.demo import PROGRAMS, faults_of, find_examples
from nanwatch.cli.main import main
from nanwatch.errors import EXIT_BAD_USE, EXIT_NON_FINITE

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["demo", *arguments])
    shown = capsys.readouterr()
    return int(end.value.code or 0), shown.out, shown.err


def test_the_examples_of_the_checkout_are_found() -> None:
    assert find_examples() == EXAMPLES


def test_without_arguments_every_program_is_listed_with_its_faults(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NANWATCH_LANG", "en")
    code, out, _ = called(capsys)
    assert code == 0
    for letter in PROGRAMS:
        assert any(line.startswith(f"{letter}  ") for line in out.splitlines())
        names = faults_of(EXAMPLES, letter)
        assert names and ", ".join(names) in out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["Z"], "demo has no program Z. Expected one of: A, B, C, D, E"),
        (["D", "--fault", "nope"], "demo D has no fault nope. Expected one of: empty-bag"),
        (["D", "--fault"], "option --fault needs a value"),
        (["--fault", "empty-bag"], "nanwatch demo D --fault empty-bag"),
        (["D", "--turbo"], "demo does not know --turbo"),
        (["D", "E"], "demo does not know E"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    expected: str,
) -> None:
    monkeypatch.setenv("NANWATCH_LANG", "en")
    code, out, err = called(capsys, *arguments)
    assert code == EXIT_BAD_USE
    assert out == "" and expected in err and len(err.splitlines()) == 1


def test_a_fault_ends_as_nanwatch_run_does(workshop: Workshop) -> None:
    done = workshop.nanwatch("demo", "d", "--fault=empty-bag")
    assert done.returncode == EXIT_NON_FINITE, done.stderr
    (file,) = workshop.folder.glob("nanwatch-runs/*/incidents/*/incident.json")
    assert json.loads(file.read_text())["cause"]["id"] == "fully-masked-row"


@pytest.mark.parametrize("letter", PROGRAMS)
def test_the_faults_that_are_offered_are_those_of_the_program(workshop: Workshop, letter: str) -> None:
    done = workshop.nanwatch("demo", letter, "--list")
    assert done.returncode == 0, done.stderr
    listed = [line.split(maxsplit=1) for line in done.stdout.splitlines()[1:]]
    assert sorted(name for name, _ in listed) == sorted(faults_of(EXAMPLES, letter))
    assert all(len(sentence.split()) > 3 for _, sentence in listed)
