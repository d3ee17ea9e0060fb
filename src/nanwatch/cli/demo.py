"""`nanwatch demo`: the five example programs, each with its faults, run under `nanwatch run`.

nanwatch demo                          what there is
nanwatch demo D --list                 the faults of one program, a sentence each
nanwatch demo D --fault empty-bag      the program with this fault
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from nanwatch.cli import run
from nanwatch.errors import NanwatchError
from nanwatch.messages import say

HELP = """usage: nanwatch demo [A-E] [--fault NAME] [--list]

Runs one of the example programs under `nanwatch run`. Without arguments: the programs and their faults.
  A-E            the program; without --fault nothing goes wrong in it
  --fault NAME   let this go wrong
  --list         what goes wrong in each fault, in a sentence
  --help         this text

Exits as `nanwatch run` does: 3 when a non-finite value stopped the program."""

PROGRAMS = {
    "A": "layer_by_layer_generation.py",
    "B": "moe_cpu_experts",
    "C": "exploding_and_vanishing",
    "D": "attention_pooling",
    "E": "token_diffusion",
}
TITLES = {letter: f"demo.title_{letter}" for letter in PROGRAMS}


def main(arguments: list[str]) -> int:
    letter: str | None = None
    fault: str | None = None
    listed = False
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        if word in ("-h", "--help"):
            print(HELP)
            return 0
        if word == "--list":
            listed = True
        elif option == "--fault":
            if not equals and not rest:
                raise NanwatchError(say("cli.option_needs_value", option=option, example="--fault empty-bag"))
            fault = value if equals else rest.pop(0)
        elif word.startswith("-") or letter is not None:
            raise NanwatchError(say("demo.unknown_argument", argument=word))
        else:
            letter = _letter(word)
    folder = find_examples()
    if letter is None:
        if fault is not None:
            raise NanwatchError(say("demo.fault_of_what", fault=fault, where=_where(folder, fault)))
        _show_all(folder, sentences=listed)
        return 0
    if fault is not None:
        _check(folder, letter, fault)
    if listed:
        print(f"{letter}  {say(TITLES[letter])}\n{_sentences(folder, letter)}")
        return 0
    return run.main([_shown(folder / PROGRAMS[letter]), *([] if fault is None else ["--fault", fault])])


def find_examples() -> Path:
    """The copy that was installed beside the package, or `examples/` of a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parent / "nanwatch_examples", package.parents[1] / "examples"):
        if (folder / "truths").is_dir():
            return folder
    raise NanwatchError(say("demo.no_examples", package=package))


def faults_of(folder: Path, letter: str) -> list[str]:
    truths = folder / "truths" / f"{letter}.json"
    return list(json.loads(truths.read_text(encoding="utf-8"))) if truths.is_file() else []


def _letter(word: str) -> str:
    if word.upper() not in PROGRAMS:
        raise NanwatchError(say("demo.unknown_letter", given=word, choices=", ".join(PROGRAMS)))
    return word.upper()


def _check(folder: Path, letter: str, fault: str) -> None:
    known = faults_of(folder, letter)
    if fault not in known:
        choices = ", ".join(known)
        raise NanwatchError(say("demo.unknown_fault", letter=letter, fault=fault, choices=choices))


def _where(folder: Path, fault: str) -> str:
    """A letter that has this fault, for an example of what to write."""
    return next((letter for letter in PROGRAMS if fault in faults_of(folder, letter)), "D")


def _show_all(folder: Path, sentences: bool) -> None:
    for letter, title in TITLES.items():
        print(f"{letter}  {say(title)}")
        print(_sentences(folder, letter) if sentences else f"   {', '.join(faults_of(folder, letter))}")
        print()
    print(say("demo.how"))


def _sentences(folder: Path, letter: str) -> str:
    """The program's own `--list`: a name, a tab and a sentence on each line."""
    command = [sys.executable, str(folder / PROGRAMS[letter]), "--list"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["?"])[-1]
        raise NanwatchError(say("demo.no_list", program=command[1], why=last))
    pairs = [line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line]
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(f"   {name:{width}}  {sentence}" for name, sentence in pairs)


def _shown(path: Path) -> str:
    """The path as one would write it here, if that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)
