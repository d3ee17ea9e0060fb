"""Bad input: one line on stderr that says what to do, exit code 2, and nothing run."""

from __future__ import annotations

import sys

import pytest
from workshop import Workshop

from nanwatch.cli import main as cli_main
from nanwatch.cli import run

UNKNOWN = (
    "nanwatch: unknown option {}. nanwatch's own options come before the script, the script's come after it; "
    "the list: nanwatch run --help"
)
NO_SCRIPT = (
    "nanwatch: no script was given. Write for example: nanwatch run train.py --lr 1e-3, "
    "or for a module: nanwatch run -m package.module"
)
NOT_PYTHON = (
    "nanwatch: {} is not Python source ({}). Give the script that Python itself would run, "
    "for example: nanwatch run train.py"
)
NO_MODULE = (
    "nanwatch: no module named {} (sys.path starts at {{folder}}). Check the spelling, "
    f"or install it in this environment: {sys.executable}"
)
CASES = {
    "nothing": ([], NO_SCRIPT),
    "no script": (["run"], NO_SCRIPT),
    "no script after options": (["run", "--policy", "skip"], NO_SCRIPT),
    "no script after --": (["run", "--"], NO_SCRIPT),
    "missing": (
        ["run", "nope.py"],
        "nanwatch: no such script: nope.py (looked in {folder}). Give the path of a Python file, "
        "for example: nanwatch run train.py",
    ),
    "a path through a file": (
        ["run", "good.py/x.py"],
        "nanwatch: no such script: good.py/x.py (looked in {folder}). Give the path of a Python file, "
        "for example: nanwatch run train.py",
    ),
    "an empty name": (
        ["run", ""],
        "nanwatch: the name of the script is empty. Write for example: nanwatch run train.py",
    ),
    "directory": (
        ["run", "folder"],
        "nanwatch: folder is a directory, a Python file was expected. Give the script inside it, "
        "or run a package with: nanwatch run -m package",
    ),
    "binary": (
        ["run", "binary"],
        NOT_PYTHON.format("binary", "source code string cannot contain null bytes"),
    ),
    "not UTF-8": (
        ["run", "latin"],
        NOT_PYTHON.format(
            "latin",
            "line 1: (unicode error) 'utf-8' codec can't decode byte 0xe9 in position 3: "
            "unexpected end of data",
        ),
    ),
    "syntax error": (["run", "broken.py"], NOT_PYTHON.format("broken.py", "line 2: '(' was never closed")),
    "unknown option": (["run", "--polcy", "skip", "good.py"], UNKNOWN.format("--polcy")),
    "unknown option with a value": (["run", "--polcy=skip", "good.py"], UNKNOWN.format("--polcy")),
    "unknown option before a command": (["--policy", "skip"], UNKNOWN.format("--policy")),
    "unknown command": (
        ["good.py"],
        "nanwatch: unknown command good.py. Commands: run, explain, stable-config, demo; to run a script: "
        "nanwatch run good.py",
    ),
    "unknown policy": (
        ["run", "--policy", "retry", "good.py"],
        "nanwatch: unknown policy retry. Expected one of: raise, skip, rollback, survive, observe, zero; for "
        'example: nanwatch run --policy raise train.py, or nanwatch.watch(policy="raise")',
    ),
    "unknown mode": (
        ["run", "--mode=gpu", "good.py"],
        "nanwatch: unknown mode gpu. Expected one of: auto, host, device; "
        "auto is right for almost everybody.",
    ),
    "option without a value": (
        ["run", "--dir"],
        "nanwatch: option --dir needs a value, for example: --dir runs/today",
    ),
    "option with an empty value": (
        ["run", "--dir", "", "good.py"],
        "nanwatch: option --dir needs a value, for example: --dir runs/today",
    ),
    "option with nothing after the sign": (
        ["run", "--dir=", "good.py"],
        "nanwatch: option --dir needs a value, for example: --dir runs/today",
    ),
    "module without a name": (
        ["run", "-m"],
        "nanwatch: option -m needs a value, for example: -m package.train",
    ),
    "not a number": (
        ["run", "--audit-seconds", "many", "good.py"],
        "nanwatch run: --audit-seconds is 'many'; a number of at least 0 was expected.",
    ),
    "a number that is none": (
        ["run", "--audit-seconds", "nan", "good.py"],
        "nanwatch run: --audit-seconds is nan; a number of at least 0 was expected.",
    ),
    "not a whole number": (
        ["run", "--snapshot-every", "1.5", "good.py"],
        "nanwatch run: --snapshot-every is 1.5; a whole number of at least 1 was expected.",
    ),
    "too small a number": (
        ["run", "--snapshot-every", "0", "good.py"],
        "nanwatch run: --snapshot-every is 0; a whole number of at least 1 was expected.",
    ),
    "no factor": (
        ["run", "--rate-factor", "0", "good.py"],
        "nanwatch run: --rate-factor is 0; a number above 0 and not above 1 was expected.",
    ),
    "a flag with a value": (
        ["run", "--checklist=yes", "good.py"],
        "nanwatch: option --checklist takes no value, 'yes' was given; write it alone: --checklist",
    ),
    "unknown option of explain": (
        ["explain", "--frob"],
        "nanwatch: unknown option --frob; the list: nanwatch explain --help",
    ),
    "two causes": (
        ["explain", "overflow", "log-of-zero"],
        "nanwatch: one cause or folder at a time is explained, overflow and log-of-zero were given; "
        "write: nanwatch explain overflow",
    ),
    "a cause that is misspelt": (
        ["explain", "log-of-zeros"],
        "nanwatch: log-of-zeros is neither a cause nor a run folder. Did you mean: log-of-zero? "
        "`nanwatch explain` lists the causes.",
    ),
    "a folder of no run": (
        ["explain", "folder"],
        "nanwatch: the folder folder is not of a run of nanwatch: it has no run.json. Give the folder that "
        "`nanwatch run` has named, or an incident.json.",
    ),
    "not a share": (
        ["run", "--audit-share=-1", "good.py"],
        "nanwatch run: --audit-share is -1; a number from 0 to 1 was expected.",
    ),
    "more than all": (
        ["run", "--audit-share", "2", "good.py"],
        "nanwatch run: --audit-share is 2; a number from 0 to 1 was expected.",
    ),
    "unknown module": (["run", "-m", "nope.inner"], NO_MODULE.format("nope.inner")),
    "unknown module of a package": (["run", "-m", "package.nope"], NO_MODULE.format("package.nope")),
    "a module inside a module": (["run", "-m", "quiet.inner"], NO_MODULE.format("quiet.inner")),
    "an empty module name": (["run", "-m", ""], NO_MODULE.format("")),
    "a relative module name": (["run", "-m", ".good"], NO_MODULE.format(".good")),
    "a built-in module": (["run", "-m", "sys"], NO_MODULE.format("sys")),
    "package without __main__": (
        ["run", "-m", "package"],
        "nanwatch: package is a package without __main__.py, so Python cannot run it. "
        "Name a module inside it, for example: nanwatch run -m package.train",
    ),
    "module that is no Python": (
        ["run", "-m", "package.broken"],
        NOT_PYTHON.format("{folder}/package/broken.py", "line 2: '(' was never closed"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_one_line_and_exit_code_2(workshop: Workshop, case: str) -> None:
    arguments, sentence = CASES[case]
    workshop.write("good.py", "print('ran')")
    workshop.write("quiet.py", "")
    workshop.write("folder/inside.py", "")
    workshop.write("package/__init__.py", "")
    for broken in ("broken.py", "package/broken.py"):
        workshop.write(broken, "x = 1\nprint(1")
    (workshop.folder / "binary").write_bytes(bytes(range(256)) * 20)
    (workshop.folder / "latin").write_bytes(b"x = caf\xe9")
    done = workshop.nanwatch(*arguments)
    assert done.stderr == sentence.replace("{folder}", str(workshop.folder)) + "\n"
    assert (done.returncode, done.stdout) == (2, "")
    assert not (workshop.folder / "nanwatch-runs").exists()


def test_bad_input_in_chinese(workshop: Workshop) -> None:
    import os
    import subprocess

    done = subprocess.run(
        [sys.executable, "-m", "nanwatch", "run"],
        env={**os.environ, "NANWATCH_LANG": "zh", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 2
    assert done.stderr.startswith("nanwatch：没有给出要运行的脚本。") and done.stderr.count("\n") == 1


def test_the_surface_is_frozen() -> None:
    """Options may be added, in this list too; none may go or change its meaning."""
    assert sorted(run.EXAMPLES) == [
        "--audit-seconds",
        "--audit-share",
        "--dir",
        "--mode",
        "--policy",
        "--rate-factor",
        "--rollbacks",
        "--skip-in-a-row",
        "--skip-per-thousand",
        "--snapshot-every",
        "-m",
    ]
    assert sorted(cli_main.COMMANDS) == ["demo", "explain", "run", "stable-config"]
    assert vars(run.Options()) == {
        "dir": None,
        "policy": "raise",
        "mode": "auto",
        "audit_seconds": None,
        "audit_share": None,
        "patient": False,
        "checklist": False,
        "explain": True,
        "early_warning": True,
        "gate": True,
        "snapshot_every": None,
        "limits": {},
        "module": None,
        "rest": [],
    }
    assert sorted(run.FLAGS) == [
        "--checklist",
        "--no-early-warning",
        "--no-explain",
        "--no-gate",
        "--patient",
    ]
    for option in run.EXAMPLES:
        assert option in run.HELP or option == "-m"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dir", "d", "--policy", "skip", "--mode", "host", "--audit-seconds", "2", "--audit-share", "0"],
        ["--dir=d", "--policy=skip", "--mode=host", "--audit-seconds=2", "--audit-share=0", "--"],
    ],
)
def test_every_option_is_understood(arguments: list[str]) -> None:
    options = run.parse([*arguments, "script.py", "--policy", "raise", "-m"])
    assert options == run.Options(
        "d", "skip", "host", 2.0, 0.0, rest=["script.py", "--policy", "raise", "-m"]
    )


def test_after_a_module_everything_is_the_modules() -> None:
    assert run.parse(["-m", "a.b", "--policy", "skip"]) == run.Options(
        module="a.b", rest=["--policy", "skip"]
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--help"], cli_main.USAGE),
        (["-h"], cli_main.USAGE),
        (["run", "--help"], run.HELP),
        (["run", "--policy", "skip", "-h"], run.HELP),
        (["--version"], "nanwatch 0.1.0"),
    ],
)
def test_help_and_version(workshop: Workshop, arguments: list[str], text: str) -> None:
    done = workshop.nanwatch(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, text + "\n", "")
