"""The catalogue holds every sentence twice, with the same holes, and `say` fills them."""

from __future__ import annotations

import ast
import re
import string
import subprocess
import sys
from pathlib import Path

import pytest

import nanwatch
from nanwatch.messages import chosen_language, say, say_in
from nanwatch.messages.catalogue import CATALOGUE, SUBJECTS
from nanwatch.records import incident

SOURCES = sorted(Path(nanwatch.__file__).parent.rglob("*.py"))


def placeholders(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}


def test_every_file_of_sentences_is_in_the_catalogue_and_no_id_in_two() -> None:
    files = {path.stem for path in SOURCES if path.parent.name == "sentences"} - {"__init__"}
    assert {subject.__name__.rpartition(".")[2] for subject in SUBJECTS} == files
    assert sum(len(subject.SENTENCES) for subject in SUBJECTS) == len(CATALOGUE)


def test_both_languages_have_the_same_placeholders() -> None:
    for message, (english, chinese) in CATALOGUE.items():
        assert placeholders(english) == placeholders(chinese), message


def test_every_sentence_is_one_line_and_not_empty() -> None:
    for message, sentences in CATALOGUE.items():
        assert all(s and s == s.strip() and "\n" not in s for s in sentences), message


def test_sentences_longer_than_a_label_are_translated() -> None:
    same = {m for m, (english, chinese) in CATALOGUE.items() if english == chinese and " " in english}
    assert same == {"screen.rank"}


def test_every_cli_sentence_begins_with_the_name_of_the_tool() -> None:
    for message, (english, chinese) in CATALOGUE.items():
        if message.startswith("cli."):
            assert english.startswith("nanwatch: ") and chinese.startswith("nanwatch：")


def spoken_in(source: Path) -> list[tuple[str, set[str] | None, str]]:
    """(id, keywords or None when they are passed on with **, where) of each say("…") in a file."""
    found = []
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        first = node.args[0]
        if name == "say" and isinstance(first, ast.Constant) and isinstance(first.value, str):
            names = [k.arg for k in node.keywords]
            values = None if None in names else {n for n in names if n}
            found.append((first.value, values, f"{source.name}:{node.lineno}"))
    return found


def test_what_the_source_says_is_in_the_catalogue_with_its_values() -> None:
    spoken = [entry for source in SOURCES for entry in spoken_in(source)]
    assert len(spoken) > 20
    for message, values, where in spoken:
        assert message in CATALOGUE, f"{where}: no sentence {message}"
        if values is not None:
            assert placeholders(CATALOGUE[message][0]) <= values, f"{where}: {message} lacks a value"


def ids_in(source: str) -> list[re.Pattern[str]]:
    """What a file may say: each string in it, with anything where an f-string has a hole, and, after a
    string that names a group ("screen.seen"), any word."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(re.escape(node.value))
            if re.fullmatch(r"[a-z]+\.[a-z]+", node.value) and node.value not in CATALOGUE:
                found.append(re.escape(node.value) + r"\.[^.]+")
        elif isinstance(node, ast.JoinedStr):
            parts = (re.escape(v.value) if isinstance(v, ast.Constant) else ".+" for v in node.values)
            found.append("".join(parts))
    return [re.compile(text) for text in found if re.match(r"[a-z]+\\\.", text)]


def unused(sources: list[str]) -> set[str]:
    spoken = [pattern for source in sources for pattern in ids_in(source)]
    return {message for message in CATALOGUE if not any(p.fullmatch(message) for p in spoken)}


def test_every_sentence_is_said_somewhere() -> None:
    speakers = [source for source in SOURCES if source.parent.name != "sentences"]
    assert unused([source.read_text(encoding="utf-8") for source in speakers]) == set()


def test_an_unused_sentence_would_be_found() -> None:
    source = 'say("cli.no_script"); say(f"screen.born.{phase}"); known("screen.seen", word)'
    used = set(CATALOGUE) - unused([source])
    in_groups = {m for m in CATALOGUE if m.startswith(("screen.born.", "screen.seen."))}
    assert used == {"cli.no_script", *in_groups}


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("screen.born", incident.PHASES),
        ("screen.phase", incident.PHASES),
        ("screen.seen", incident.SEEN_IN),
        ("screen.by", incident.LOCATED_BY),
        ("screen.certainty", incident.CERTAINTIES),
        ("screen.action", (*incident.ACTIONS, "raised_here", "raised_weights")),
    ],
)
def test_every_word_of_an_incident_has_its_sentence(group: str, words: tuple[str, ...]) -> None:
    said = {m.removeprefix(f"{group}.") for m in CATALOGUE if m.startswith(f"{group}.")}
    assert said == set(words)


def test_missing_script_in_both_languages() -> None:
    values = {"path": "trian.py", "cwd": "/home/me/project"}
    assert say_in("en", "cli.missing_script", **values) == (
        "nanwatch: no such script: trian.py (looked in /home/me/project). "
        "Give the path of a Python file, for example: nanwatch run train.py"
    )
    assert say_in("zh", "cli.missing_script", **values) == (
        "nanwatch：找不到脚本 trian.py（查找目录：/home/me/project）。"
        "请给出一个 Python 文件的路径，例如：nanwatch run train.py"
    )


def test_stepping_aside_says_what_failed_that_training_goes_on_and_where_to_report() -> None:
    assert say_in("en", "watch.stepped_aside", error="recorder: RuntimeError: boom") == (
        "nanwatch: an error of its own (recorder: RuntimeError: boom). It steps aside: your training goes "
        "on, unwatched from here. Please report this line to the issue tracker of nanwatch."
    )


def test_values_may_hold_braces() -> None:
    assert "{x}" in say_in("en", "cli.missing_script", path="{x}", cwd=".")


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_ALL": "", "LC_MESSAGES": "zh_TW", "LANG": "en_US.UTF-8"}, "zh"),
        ({"NANWATCH_LANG": "en", "LC_ALL": "zh_CN.UTF-8"}, "en"),
        ({"NANWATCH_LANG": "ZH", "LC_ALL": "C"}, "zh"),
        ({"NANWATCH_LANG": "zh-Hans"}, "zh"),
        ({"NANWATCH_LANG": "klingon", "LANG": "zh_CN"}, "zh"),
    ],
)
def test_language_comes_from_nanwatch_lang_then_the_locale(environ: dict[str, str], language: str) -> None:
    assert chosen_language(environ, "utf-8") == language


@pytest.mark.parametrize(
    ("encoding", "language"),
    [("utf-8", "zh"), ("gbk", "zh"), ("ascii", "en"), ("cp1252", "en"), ("no-such-codec", "en")],
)
def test_a_terminal_that_cannot_show_chinese_gets_english(encoding: str, language: str) -> None:
    assert chosen_language({"NANWATCH_LANG": "zh"}, encoding) == language


def test_say_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    monkeypatch.setenv("NANWATCH_LANG", "zh")
    assert say("screen.step", step=5) == "第 5 步"
    monkeypatch.setenv("NANWATCH_LANG", "en")
    assert say("screen.step", step=5) == "step 5"


def modules_after(statement: str) -> str:
    code = (
        f"import sys\n{statement}\nprint(' '.join(sorted(m for m in sys.modules if m in ('torch', 'rich'))))"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_messages_import_neither_torch_nor_rich() -> None:
    assert modules_after("import nanwatch.messages") == ""
    assert modules_after("import rich") == "rich", "this test could not fail"
