"""The screen a person sees: exact text, and every incomplete or hostile incident still shown."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from nanwatch.records import Birth, Cause, Frame, Hidden, Hop, Incident, Numbers, Remedy
from nanwatch.show import folding
from nanwatch.show.terminal import render, takes_color, write

SOURCE = """import torch
class Pool(torch.nn.Module):
    def forward(self, q, k, v, mask):
        scores = q @ k.transpose(-1, -2)
        scores = scores.masked_fill(mask, float("-inf"))
        attn = scores.softmax(-1)
        return attn @ v

print("done")
"""
TORCH = "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py"
LIBRARY = (Frame(TORCH, 1, "_wrapped_call_impl", library=True), Frame(TORCH, 2, "_call_impl", library=True))
BIRTH = Birth(
    "aten._softmax.default",
    "pool.attn",
    "train.py",
    6,
    code="attn = scores.softmax(-1)",
    stack=(
        Frame("train.py", 60, "<module>", "main()"),
        Frame("train.py", 52, "main", "loss = criterion(model(batch), target)"),
        *LIBRARY,
        Frame("train.py", 6, "forward", "attn = scores.softmax(-1)"),
        *LIBRARY[:1],
    ),
    inputs=(
        Numbers((4, 8, 8), "float32", "cpu", 256, neginf=8, min=-1.5, max=2.25, mean=0.125, name="self"),
    ),
    outputs=(Numbers((4, 8, 8), "float32", "cpu", 256, nan=8, min=0.0, max=1.0, mean=0.125),),
    samples=(2,),
    arguments="dim=-1, half_to_float=False",
)
HOPS = (
    Hop("aten.bmm.default", "forward", "pool.attn", "train.py", 7, bad=16, count=512),
    *(Hop("aten.addmm.default", "forward", f"head.{i}", "train.py", 30 + i) for i in range(12)),
    Hop("aten.nll_loss_forward.default", "loss", None, "train.py", 52, bad=1, count=1),
)
INCIDENT = Incident(
    step=5,
    rank=0,
    kind="nan",
    phase="forward",
    birth=BIRTH,
    action="raised",
    seen_in="loss",
    located_by="replay",
    travel=HOPS,
)


@pytest.fixture(autouse=True)
def beside_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NANWATCH_LANG", "en")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SOURCE)
    folder = tmp_path / "nanwatch-runs" / "20250101-train" / "incidents" / "0001"
    folder.mkdir(parents=True)
    (folder / "repro.py").write_text("")
    return folder


def shown(incident: Incident, folder: object = None, width: int = 100, encoding: str = "utf-8") -> str:
    return render(incident, None if folder is None else str(folder), width, False, encoding=encoding)


def with_birth(**changes: object) -> Incident:
    return dataclasses.replace(INCIDENT, birth=dataclasses.replace(BIRTH, **changes))


def test_the_whole_screen(beside_the_script: Path) -> None:
    assert shown(INCIDENT, beside_the_script, 80) == (
        "nanwatch ───────────────────────────────────────────────────────────────────────\n"
        "NaN born in the forward pass · step 5\n"
        "Stopped before the optimizer step: the weights are untouched.\n"
        "\n"
        "train.py:6\n"
        "  4 │         scores = q @ k.transpose(-1, -2)\n"
        '  5 │         scores = scores.masked_fill(mask, float("-inf"))\n'
        "❱ 6 │         attn = scores.softmax(-1)\n"
        "  7 │         return attn @ v\n"
        "  8 │\n"
        "\n"
        "op       aten._softmax.default  dim=-1, half_to_float=False\n"
        "module   pool.attn\n"
        "seen in  loss, located by replay of the step\n"
        "\n"
        "tensor   shape dtype   nan +inf -inf  min  max  mean\n"
        "in  self 4x8x8 float32   0    0    8 -1.5 2.25 0.125\n"
        "out 0    4x8x8 float32   8    0    0    0    1 0.125\n"
        "\n"
        "rows     2 of the batch, counted from 0\n"
        "way      bmm  train.py:7  pool.attn  forward  16 of 512 bad\n"
        "         addmm  train.py:30  head.0  forward\n"
        "         addmm  train.py:31  head.1  forward\n"
        "         … 8 more\n"
        "         addmm  train.py:40  head.10  forward\n"
        "         addmm  train.py:41  head.11  forward\n"
        "         nll_loss_forward  train.py:52  loss  1 of 1 bad\n"
        "stack    train.py:60 <module>  main()\n"
        "         train.py:52 main  loss = criterion(model(batch), target)\n"
        "         … 2 frames in torch\n"
        "         train.py:6 forward  attn = scores.softmax(-1)\n"
        "         … 1 frame in torch\n"
        "more     nanwatch-runs/20250101-train/incidents/0001/incident.json\n"
        "         python nanwatch-runs/20250101-train/incidents/0001/repro.py\n"
        "────────────────────────────────────────────────────────────────────────────────\n"
    )


def test_the_screen_in_chinese(beside_the_script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANWATCH_LANG", "zh")
    lines = shown(INCIDENT, beside_the_script, 100).splitlines()
    assert lines[1:3] == ["前向传播中产生 NaN · 第 5 步", "已在优化器更新之前停止：权重未受影响。"]
    assert "样本     batch 中的第 2 行（从 0 计）" in lines
    assert "张量       形状   dtype    nan  +inf  -inf  最小  最大   均值" in lines
    assert "输入 self  4x8x8  float32    0     0     8  -1.5  2.25  0.125" in lines
    assert "         … torch 内 2 层调用" in lines


LONG = "a sentence that is long and says very little of what it could have said " * 20
CROWDED = dataclasses.replace(
    INCIDENT,
    rank=3,
    birth=dataclasses.replace(
        BIRTH,
        inputs=tuple(dataclasses.replace(BIRTH.inputs[0], name=f"self.{i}" * 9) for i in range(40)),
        outputs=BIRTH.outputs * 40,
        stack=BIRTH.stack * 9,
        samples=tuple(range(500)),
    ),
    travel=HOPS * 9,
    hidden=(Hidden(HOPS[0], HOPS[1], True, LONG),) * 30,
    cause=Cause("fully-masked-row", "proved", LONG, (LONG,) * 9),
    remedies=(Remedy("r", LONG, True), Remedy("s", LONG, False), Remedy("t", LONG)),
    notes=(LONG,) * 9,
)


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("encoding", ["utf-8", "gbk", "cp1252", "ascii"])
def test_one_screen_however_much_there_is(
    width: int, language: str, encoding: str, beside_the_script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NANWATCH_LANG", language)
    for incident in (INCIDENT, CROWDED):
        text = shown(incident, beside_the_script, width, encoding)
        assert max(cell_len(line) for line in text.splitlines()) <= width
        assert text.count("\n") <= (40 if width >= 100 else 46)
        text.encode(encoding)


def test_many_rows_are_folded() -> None:
    lines = shown(with_birth(samples=tuple(range(30)))).splitlines()
    assert "rows     0, 1, 2, 3, 4, 5, 6, 7, 8, 9 … 20 more of the batch, counted from 0" in lines


def test_non_finite_operands_are_shown_before_finite_ones() -> None:
    fine = Numbers((2,), "float32", "cpu", 2, min=0.0, max=1.0, mean=0.5)
    bad = dataclasses.replace(fine, nan=2, min=None, max=None, mean=None, name="grads.77")
    text = shown(with_birth(inputs=(*(fine,) * 77, bad, *(fine,) * 9)))
    assert "in  grads.77  2      float32  all     0     0    -    -      -" in text
    assert "… 80 more" in text


def test_an_incident_of_which_nothing_is_known() -> None:
    incident = Incident(-1, 3, "inf", "weights", Birth(None, None, None, None), "raised", seen_in="weights")
    assert shown(incident, None, 80).splitlines()[1:-1] == [
        "Inf in the weights · before the first step · rank 3",
        "Stopped: the value was already in the weights, nanwatch changed nothing.",
        "",
        "The line that brought the value in is not known.",
        "",
        "op       not known",
        "seen in  weights",
    ]


def test_a_traced_block_has_no_step_and_no_action() -> None:
    traced = dataclasses.replace(INCIDENT, step=-1, action="observed", seen_in="trace")
    assert shown(traced).splitlines()[1:4] == ["NaN born here", "", "train.py:6"]
    assert "located by" not in shown(traced)
    came_in = dataclasses.replace(traced, birth=dataclasses.replace(BIRTH, op=None), phase="data")
    assert shown(came_in).splitlines()[1:4] == [
        "NaN came into the traced block from outside, read here first",
        "",
        "train.py:6",
    ]
    watched = dataclasses.replace(INCIDENT, action="observed", seen_in="trace")
    assert shown(watched).splitlines()[1:3] == [
        "NaN born in the forward pass · step 5",
        "Only observed: nanwatch did not interfere with this step.",
    ]


@pytest.mark.parametrize("phase", ["data", "weights", "forward", "loss", "backward", "optimizer"])
@pytest.mark.parametrize("action", ["raised", "skipped", "rolled-back", "observed"])
@pytest.mark.parametrize("kind", ["nan", "inf"])
def test_every_phase_and_action_has_its_sentence(phase: str, action: str, kind: str) -> None:
    incident = dataclasses.replace(INCIDENT, phase=phase, action=action, kind=kind)
    lines = shown(incident).splitlines()
    assert lines[1].startswith({"nan": "NaN", "inf": "Inf"}[kind])
    untouched = "the weights are untouched" in lines[2]
    assert untouched == (
        action == "skipped" or (action == "raised" and phase not in ("weights", "optimizer"))
    )


def test_a_model_that_is_only_called_says_nothing_of_an_optimizer() -> None:
    incident = dataclasses.replace(INCIDENT, seen_in="output")
    assert shown(incident).splitlines()[2] == "The program was stopped here."


def test_a_birth_in_backward_names_the_derivative_and_the_node() -> None:
    birth = dataclasses.replace(BIRTH, op="aten.div.Tensor", arguments="", node="SqrtBackward0")
    lines = shown(dataclasses.replace(INCIDENT, phase="backward", birth=birth)).splitlines()
    assert "train.py:6  (derivative of this line)" in lines
    assert "op       aten.div.Tensor  (SqrtBackward0)" in lines


def test_the_root_module_and_no_module_are_told_apart() -> None:
    assert "module   the root module\n" in shown(with_birth(module=""))
    assert "module   outside any module\n" in shown(with_birth(module=None))


def test_the_rank_is_shown_when_there_are_several() -> None:
    first = render(INCIDENT, None, 100, False, encoding="utf-8", world_size=8).splitlines()[1]
    assert first == "NaN born in the forward pass · step 5 · rank 0"


def test_a_file_that_is_gone_shows_the_recorded_code() -> None:
    text = shown(with_birth(file="gone.py"))
    assert "gone.py:6\n❱ 6 │ attn = scores.softmax(-1)\n\n" in text


def test_a_file_that_changed_since_shows_the_recorded_code_only(beside_the_script: Path) -> None:
    Path("other.py").write_text("\n" * 3 + SOURCE)
    text = shown(with_birth(file="other.py"))
    assert "❱ 6 │ attn = scores.softmax(-1)\n\n" in text and "Pool" not in text


@pytest.mark.parametrize("content", [b"\xff\xfe\x00bad", b"# coding: no-such\nx\n", b""])
def test_a_file_that_cannot_be_read_does_not_matter(content: bytes) -> None:
    Path("odd.py").write_bytes(content)
    assert "❱ 6 │ attn = scores.softmax(-1)" in shown(with_birth(file="odd.py"))
    assert "odd.py" in shown(with_birth(file="odd.py", line=None, code=""))


def test_code_cannot_steer_the_terminal() -> None:
    evil = "x = '\x1b[2J\x07[bold]{step}'\t# :smile:"
    text = shown(dataclasses.replace(with_birth(file="gone.py", code=evil, module=evil), notes=(evil,)))
    assert "\x1b" not in text and "\x07" not in text and "\t" not in text
    assert "[bold]{step}" in text and ":smile:" in text


def test_paths_with_odd_bytes_can_be_printed() -> None:
    text = shown(with_birth(file="tr\udcffin.py"), encoding="utf-8")
    text.encode("utf-8")


def test_an_ascii_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANWATCH_LANG", "zh")
    text = shown(with_birth(code="注意力 = scores.softmax(-1)", file="gone.py"), None, 80, "ascii")
    assert text.isascii()
    assert text.splitlines()[1] == "NaN born in the forward pass | step 5"
    assert "> 6 | ??? = scores.softmax(-1)" in text
    assert "         ... 2 frames in torch\n" in text


def test_no_colour_unless_asked_for() -> None:
    assert "\x1b" not in render(INCIDENT, None)
    assert "\x1b[1;31mNaN born in the forward pass" in render(INCIDENT, None, 100, True, encoding="utf-8")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert takes_color(Terminal()) and not takes_color(io.StringIO()) and not takes_color(None)
    monkeypatch.setenv("TERM", "dumb")
    assert not takes_color(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not takes_color(Terminal())


def test_cause_and_remedies_are_shown_when_known() -> None:
    incident = dataclasses.replace(
        INCIDENT,
        cause=Cause("fully-masked-row", "proved", "row 2 has no score", ("length of row 2 is 0",)),
        remedies=(Remedy("a", "Use masked_softmax", True), Remedy("b", "Lower the rate", False)),
        notes=("The batch was changed.",),
        travel=(),
    )
    text = shown(incident)
    assert "cause    fully-masked-row (proved): row 2 has no score\n         length of row 2 is 0\n" in text
    assert "fix      Use masked_softmax (tried on this step: it works)\n" in text
    assert "         Lower the rate (tried on this step: it does not help)\n" in text
    assert "note     The batch was changed.\n" in text


def test_an_unknown_cause_tells_what_was_ruled_out() -> None:
    cause = Cause(why="None was shown.", ruled_out=("bad-batch: the others are bad too", "race"))
    incident = dataclasses.replace(INCIDENT, cause=cause)
    assert "cause    unknown: None was shown.\n         ruled out: bad-batch, race\n" in shown(incident)
    not_looked_for = dataclasses.replace(INCIDENT, cause=Cause())
    assert "cause  " not in shown(not_looked_for)
    assert "cause" not in shown(INCIDENT)


def test_hidden_births_are_shown() -> None:
    born, by = Hop("aten.div.Tensor", "forward", None, "train.py", 4), Hop("aten.where.self", "forward")
    text = shown(dataclasses.replace(INCIDENT, hidden=(Hidden(born, by), Hidden(born, by, True, "became 0"))))
    assert "hidden   div.Tensor train.py:4, hidden by where.self\n" in text
    assert "         div.Tensor train.py:4, hidden by where.self: harmful  became 0\n" in text


def test_words_of_a_newer_nanwatch_are_shown_as_they_are() -> None:
    assert "seen in  tea leaves, located by replay of the step" in shown(
        dataclasses.replace(INCIDENT, seen_in="tea leaves")
    )


def test_a_folder_without_repro_does_not_offer_one(tmp_path: Path) -> None:
    text = shown(INCIDENT, tmp_path)
    assert "incident.json" in text and "repro.py" not in text


def test_a_path_with_a_space_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "my runs").mkdir()
    (tmp_path / "my runs" / "repro.py").write_text("")
    assert 'python "my runs/repro.py"' in shown(INCIDENT, tmp_path / "my runs")


@pytest.mark.parametrize("width", [1, 20, 40, 500])
def test_any_width_is_taken(width: int) -> None:
    assert "train.py:6" in shown(CROWDED, None, width)


def test_writing_never_fails() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    write("第 5 步 ─ …\n", stream)
    assert raw.getvalue() == b"? 5 ? - ...\n"
    closed = io.StringIO()
    closed.close()
    write("x", closed)


@pytest.mark.parametrize(
    ("file", "package"),
    [
        (TORCH, "torch"),
        ("C:\\venv\\Lib\\site-packages\\lightning\\x.py", "lightning"),
        ("/usr/lib/python3/dist-packages/six.py", "six"),
        ("/usr/lib/python3.11/runpy.py", "python"),
        ("<frozen runpy>", "python"),
        ("/home/me/checkout/torch/nn/functional.py", "nn"),
        ("alone.py", "alone.py"),
    ],
)
def test_the_package_of_a_library_frame(file: str, package: str) -> None:
    assert folding.package_of(file) == package


def test_a_stack_of_library_frames_only() -> None:
    assert "stack    … 2 frames in torch\n" in shown(with_birth(stack=LIBRARY))


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (999_999, "999999"), (12_345_678, "12.35M"), (5_000_000_000, "5G")]
)
def test_counts_are_short(count: int, text: str) -> None:
    assert folding.shown_count(count, 10**12, lambda *_: "all") == text


def loaded_by(statement: str) -> list[str]:
    code = f"import sys\n{statement}\nprint(*[m for m in ('torch', 'rich', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_show_never_imports_torch_and_rich_only_to_draw() -> None:
    names = sorted(path.stem for path in Path(folding.__file__).parent.glob("*.py"))
    modules = ", ".join(f"nanwatch.show.{name}" for name in names if name != "__init__")
    assert loaded_by(f"import nanwatch.records, nanwatch.messages, {modules}") == ["rich"]
    assert loaded_by("import nanwatch.show.terminal, nanwatch.show.folder, nanwatch.show.repro") == []
    drawing = (
        "from nanwatch.records import *\nfrom nanwatch.show.terminal import render\n"
        "render(Incident(0, 0, 'nan', 'data', Birth(None, None, None, None), 'raised'), None)"
    )
    assert loaded_by(drawing) == ["rich"]
    assert "torch" in loaded_by("import torch"), "this test could not fail"
