"""`nanwatch stable-config`: every file it writes is run with the real framework, and trains."""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path

import pytest
from workshop import Workshop

from nanwatch.act.configurations import FRAMEWORKS, Wishes, configuration
from nanwatch.messages.catalogue import CATALOGUE

WISHES = Wishes(learning_rate=1e-2, clip_norm=0.5, total_steps=60, warmup_steps=6)
LANGUAGES = ("en", "zh")


SEEN = {
    "plain": """
        model = torch.nn.Linear(8, 2)
        optimizer = config.make_optimizer(model)
        scheduler = config.make_scheduler(optimizer)
        batch = (1e6 * torch.randn(8, 8), torch.zeros(8, dtype=torch.long))
        config.train_step(model, batch, config.make_loss(), optimizer, scheduler)
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        print(type(optimizer).__name__, [round(g["weight_decay"], 4) for g in optimizer.param_groups])
        print(round(float(norm), 4), scheduler.base_lrs, scheduler.warmup_steps, scheduler.total_steps)
        """,
    "trainer": """
        a = config.make_arguments("out", use_cpu=True)
        print(a.learning_rate, a.max_grad_norm, a.max_steps, a.warmup_steps, a.weight_decay)
        print(a.lr_scheduler_type.value, getattr(a.optim, "value", a.optim), a.fp16, a.bf16)
        print(a.dataloader_drop_last, a.logging_nan_inf_filter, a.label_smoothing_factor)
        """,
    "lightning": """
        t = config.make_trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
        print(t.precision, t.gradient_clip_val, t.gradient_clip_algorithm.value, t.max_steps)
        print(config.make_trainer(accelerator="cpu", logger=False, max_steps=7).max_steps)
        """,
    "accelerate": """
        a = config.make_accelerator(cpu=True)
        print(a.mixed_precision, a.gradient_accumulation_steps)
        model, data = torch.nn.Linear(8, 2), torch.utils.data.TensorDataset(
            1e6 * torch.randn(9, 8), torch.zeros(9, dtype=torch.long))
        try:
            config.make_loader(torch.utils.data.Subset(data, range(7)))
        except ValueError as error:
            print(error)
        print(len(config.make_loader(data)), len(config.train(model, data, steps=3, accelerator=a)))
        """,
}
EXPECTED = {
    "plain": ["AdamW [0.01, 0.0]", "0.5 [0.01, 0.01] 6 60"],
    "trainer": ["0.01 0.5 60 6 0.01", "cosine adamw_torch False False", "True False 0.1"],
    "lightning": ["32-true 0.5 norm 60", "7"],
    "accelerate": ["no 1", "The data holds less than one whole batch: use a smaller batch_size.", "1 3"],
}


def write_and_train(framework: str, language: str, workshop: Workshop, first: str) -> list[str]:
    """What is printed by a script that does `first` with the written file, and then runs it."""
    written = workshop.nanwatch(
        *("stable-config", "--framework", framework, "--language", language, "--output", "config.py"),
        *("--learning-rate", "1e-2", "--clip", "0.5", "--total-steps", "60", "--warmup-steps=6"),
    )
    assert written.returncode == 0 and "python config.py" in written.stdout, written.stderr
    text = (workshop.folder / "config.py").read_text(encoding="utf-8")
    assert text == configuration(framework, language, WISHES)
    workshop.write(
        "use.py",
        f"""
        import runpy
        import torch
        import config
        {first}
        runpy.run_path("config.py", run_name="__main__")
        """,
    )
    done = workshop.python("use.py")
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.strip()]


def assert_it_trained(lines: list[str], workshop: Workshop) -> None:
    shown = re.fullmatch(r"loss (\S+) -> (\S+)", lines[-1])
    assert shown is not None, lines
    first, last = map(float, shown.groups())
    assert math.isfinite(first) and last < 0.9 * first
    logs = [f.read_text().splitlines() for f in workshop.folder.glob("nanwatch-runs/*/steps-rank0.jsonl")]
    assert max(map(len, logs)) == 60, "detection was not on"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_written_file_trains_and_its_settings_reach_the_framework(
    framework: str, workshop: Workshop
) -> None:
    lines = write_and_train(framework, "en", workshop, SEEN[framework].strip())
    assert_it_trained(lines, workshop)
    assert [line for line in lines if line in EXPECTED[framework]] == EXPECTED[framework], lines


def test_the_chinese_file_trains(workshop: Workshop) -> None:
    """One is enough: the others are the same program in both languages, as the next test shows."""
    assert_it_trained(write_and_train("plain", "zh", workshop, ""), workshop)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_both_languages_are_the_same_program(framework: str) -> None:
    english, chinese = (configuration(framework, language, WISHES) for language in LANGUAGES)
    empty = CATALOGUE["config.empty"]
    assert ast.dump(ast.parse(english)) == ast.dump(ast.parse(chinese.replace(empty[1], empty[0])))
    assert any("\u4e00" <= letter <= "\u9fff" for letter in chinese) and english.isascii()
    assert not re.search(r"#[:+]", english) and "@" not in re.sub(r"[\w.]+@[\w.]+", "", english)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_setting_has_its_comment_and_no_line_is_long(framework: str, language: str) -> None:
    lines = configuration(framework, language, WISHES).splitlines()
    constants = [i for i, line in enumerate(lines) if re.match(r"[A-Z_]+ = ", line)]
    assert len(constants) >= 7
    for i in constants:
        assert lines[i - 1].startswith("# ")
    assert max(len(line.encode("gb18030")) for line in lines) <= 100
    assert not any(re.match(r" *# [，。；：、）！？]", line) for line in lines)


def test_without_output_it_is_printed_with_careful_defaults(workshop: Workshop) -> None:
    shown = workshop.nanwatch("stable-config", "--framework", "plain")
    assert shown.returncode == 0 and list(workshop.folder.iterdir()) == []
    assert shown.stdout == configuration("plain", "en", Wishes(5e-5, 1.0, 10000, 1000))


def test_a_file_is_never_overwritten(workshop: Workshop) -> None:
    mine = workshop.write("mine.py", "precious = 1\n")
    refused = workshop.nanwatch("stable-config", "--framework", "plain", "--output", "mine.py")
    assert (
        refused.returncode == 2 and refused.stderr.count("\n") == 1 and "mine.py is there" in refused.stderr
    )
    assert mine.read_text() == "precious = 1\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "needs a framework, one of: plain, accelerate, trainer, lightning"),
        (["--framework", "keras"], "--framework was given keras. Expected one of: plain,"),
        (["--framework"], "option --framework needs a value"),
        (["plain"], "does not know plain"),
        (["--frame", "plain"], "does not know --frame"),
        (
            ["--framework", "plain", "--learning-rate", "fast"],
            "--learning-rate was given fast; a finite number",
        ),
        (["--framework", "plain", "--learning-rate", "-1"], "--learning-rate was given -1; a finite number"),
        (["--framework", "plain", "--learning-rate", "nan"], "--learning-rate was given nan"),
        (["--framework", "plain", "--clip=0"], "--clip was given 0; a finite number above 0"),
        (
            ["--framework", "plain", "--total-steps", "0"],
            "--total-steps was given 0; a whole number of at least 1",
        ),
        (["--framework", "plain", "--total-steps", "1e4"], "--total-steps was given 1e4; a whole number"),
        (["--framework", "plain", "--warmup-steps", "-3"], "--warmup-steps was given -3"),
        (
            ["--framework", "plain", "--total-steps", "10", "--warmup-steps", "10"],
            "--warmup-steps is 10 and --total-steps is 10",
        ),
        (["--framework", "plain", "--language", "de"], "--language was given de. Expected one of: en, zh"),
        (
            ["--framework", "plain", "--output", "no/such/folder/a.py"],
            "no/such/folder/a.py cannot be written",
        ),
        (["--framework", "plain", "--output", ""], "option --output needs a value"),
    ],
)
def test_bad_input_gets_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from nanwatch.cli.main import main

    with pytest.raises(SystemExit) as end, pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setenv("NANWATCH_LANG", "en")
        main(["stable-config", *arguments])
    shown = capsys.readouterr()
    assert end.value.code == 2 and shown.out == ""
    assert shown.err.count("\n") == 1 and said in shown.err
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    from nanwatch.cli.stable_config import READERS, main

    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(option in shown for option in READERS)
