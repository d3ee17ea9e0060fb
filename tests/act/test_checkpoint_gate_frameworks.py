"""Real frameworks behind the gate: whole folders are kept aside, and no good checkpoint is rotated away."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import transformers
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import ProjectConfiguration
from lightning.fabric import Fabric
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from nanwatch.act import checkpoint_gate as gate

CONFIG = GPT2Config(
    n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=8, bos_token_id=0, eos_token_id=0
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("NANWATCH_LANG", "en")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    yield tmp_path
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture
def gated() -> Iterator[None]:
    with gate.checkpoint_gate():
        yield


def spoil(model: nn.Module, value: float = float("nan")) -> None:
    with torch.no_grad():
        next(iter(model.parameters())).view(-1)[0] = value


def contents(folder: str) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def is_good(folder: str) -> bool:
    files = list(Path(folder).glob("*.safetensors"))
    assert files, folder
    return all(bool(t.isfinite().all()) for file in files for t in load_file(file).values())


@pytest.mark.usefixtures("gated")
def test_save_pretrained_keeps_all_shards_of_a_bad_model_aside(capfd: pytest.CaptureFixture[str]) -> None:
    model = GPT2LMHeadModel(CONFIG)
    model.save_pretrained("out", max_shard_size="2KB")
    good = contents("out")
    assert len(list(Path("out").glob("*.safetensors"))) > 2
    spoil(model)
    model.save_pretrained("out", max_shard_size="2KB")
    model.save_pretrained("out", state_dict=model.state_dict())
    assert contents("out") == good
    assert sorted(os.listdir()) == ["nonfinite-2-out", "nonfinite-out", "out"]
    assert len(os.listdir("nonfinite-out")) == len(os.listdir("out"))
    kept = GPT2LMHeadModel.from_pretrained("nonfinite-out")
    assert kept.transformer.wte.weight.isnan().sum() == 1
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("nanwatch")]
    assert len(said) == 2 and "transformer.wte.weight (1 NaN, 0 +Inf, 0 -Inf of 160)" in said[0]


def test_save_pretrained_of_a_good_model_is_byte_for_byte_the_same() -> None:
    model = GPT2LMHeadModel(CONFIG)
    model.save_pretrained("plain")
    with gate.checkpoint_gate():
        model.save_pretrained("gated")
    assert [*contents("plain").values()] == [*contents("gated").values()]


class Spoiler(transformers.TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if state.global_step == 3:
            spoil(model)


@pytest.mark.usefixtures("gated")
def test_trainer_does_not_rotate_its_last_good_checkpoint_away() -> None:
    data = [{"input_ids": torch.arange(6), "labels": torch.arange(6)}] * 8
    arguments = TrainingArguments(
        "out", max_steps=4, save_steps=1, save_total_limit=1, per_device_train_batch_size=2, use_cpu=True,
        report_to=[], disable_tqdm=True,
    )  # fmt: skip
    Trainer(GPT2LMHeadModel(CONFIG), arguments, train_dataset=data, callbacks=[Spoiler()]).train()
    assert sorted(os.listdir("out")) == ["checkpoint-2", "nonfinite-checkpoint-3", "nonfinite-checkpoint-4"]
    assert sorted(os.listdir("out/checkpoint-2")) == sorted(os.listdir("out/nonfinite-checkpoint-3"))
    assert is_good("out/checkpoint-2") and not is_good("out/nonfinite-checkpoint-3")
    assert get_last_checkpoint("out") == "out/checkpoint-2"
    assert transformers.trainer.PREFIX_CHECKPOINT_DIR == "checkpoint"


def accelerated(**project: Any) -> tuple[Accelerator, nn.Module, Any]:
    accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration("project", **project))
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return accelerator, model, optimizer


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize("what", ["model", "optimizer"])
def test_accelerate_save_state(what: str, capfd: pytest.CaptureFixture[str]) -> None:
    accelerator, model, optimizer = accelerated()
    accelerator.save_state("state")
    good = contents("state")
    if what == "model":
        spoil(model)
    else:
        next(iter(optimizer.optimizer.state.values()))["exp_avg_sq"].view(-1)[0] = float("inf")
    accelerator.save_state("state")
    assert contents("state") == good
    assert sorted(os.listdir("nonfinite-state")) == sorted(os.listdir("state"))
    name = "model.0.0.weight (1 NaN" if what == "model" else "exp_avg_sq (0 NaN, 1 +Inf"
    assert name in capfd.readouterr().err


@pytest.mark.usefixtures("gated")
def test_accelerate_with_numbered_checkpoints_deletes_no_good_one(capfd: pytest.CaptureFixture[str]) -> None:
    accelerator, model, _ = accelerated(automatic_checkpoint_naming=True, total_limit=1)
    accelerator.save_state()
    good = contents("project/checkpoints")
    spoil(model)
    accelerator.save_state()
    accelerator.save_state()
    assert contents("project/checkpoints") == good and good
    kept = ["checkpoints", "nonfinite-checkpoint_1", "nonfinite-checkpoint_2"]
    assert sorted(os.listdir("project")) == kept
    assert os.path.join("project", "checkpoints", "checkpoint_1") in capfd.readouterr().err
    assert accelerator.project_configuration.automatic_checkpoint_naming
    accelerator.load_state()
    assert next(iter(model.parameters())).isfinite().all()


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize("safe", [True, False])
def test_accelerate_save_model(safe: bool) -> None:
    accelerator, model, _ = accelerated()
    accelerator.save_model(model, "model", max_shard_size=60, safe_serialization=safe)
    good = contents("model")
    assert len(good) > 2
    spoil(model)
    accelerator.save_model(model, "model", max_shard_size=60, safe_serialization=safe)
    assert contents("model") == good
    assert sorted(os.listdir("nonfinite-model")) == sorted(os.listdir("model"))


class Small(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        return self.linear(batch).square().sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)

    def on_train_epoch_end(self) -> None:
        if self.current_epoch == 2:
            spoil(self)


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize("save_last", [True, "link"])
def test_lightning_keeps_its_best_and_its_last_checkpoint(
    save_last: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    keeper = pl.callbacks.ModelCheckpoint("out", filename="{epoch}", save_last=save_last)
    trainer = pl.Trainer(
        max_epochs=4, callbacks=[keeper], logger=False, enable_progress_bar=False, accelerator="cpu",
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Small(), DataLoader(torch.ones(4, 2)))
    found = {
        name: bool(
            torch.load(f"out/{name}", weights_only=False)["state_dict"]["linear.weight"].isfinite().all()
        )
        for name in sorted(os.listdir("out"))
    }
    bad = ["epoch=2.nonfinite.ckpt", "epoch=3.nonfinite.ckpt"]
    bad += [] if save_last == "link" else ["last.nonfinite-2.ckpt", "last.nonfinite.ckpt"]
    assert found == {"epoch=1.ckpt": True, "last.ckpt": True, **dict.fromkeys(bad, False)}
    assert os.path.islink("out/last.ckpt") == (save_last == "link")
    said = capfd.readouterr().err
    assert "state_dict.linear.weight (1 NaN" in said
    assert said.count("is not deleted") == 1


@pytest.mark.usefixtures("gated")
def test_fabric_save() -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    model = fabric.setup(nn.Linear(2, 1))
    fabric.save("model.ckpt", {"model": model, "loss": torch.tensor(float("nan"))})
    good = Path("model.ckpt").read_bytes()
    spoil(model)
    fabric.save("model.ckpt", {"model": model})
    assert Path("model.ckpt").read_bytes() == good
    assert sorted(os.listdir()) == ["model.ckpt", "model.nonfinite.ckpt"]


def test_what_it_wraps_in_frameworks_is_given_back() -> None:
    owners = [
        (transformers.PreTrainedModel, "save_pretrained"),
        (Trainer, "_save_checkpoint"),
        (Accelerator, "save_state"),
        (Accelerator, "save_model"),
        (pl.callbacks.ModelCheckpoint, "_link_checkpoint"),
    ]
    originals = [vars(owner)[name] for owner, name in owners]
    with gate.checkpoint_gate():
        assert all(vars(owner)[name] is not f for (owner, name), f in zip(owners, originals, strict=True))
    assert all(vars(owner)[name] is f for (owner, name), f in zip(owners, originals, strict=True))


LATE = """
from nanwatch.act import checkpoint_gate
checkpoint_gate.install()
import torch
from accelerate import Accelerator
from torch.distributed.checkpoint import save
model = torch.nn.Linear(2, 1)
Accelerator(cpu=True).save_model(model, "accelerate")
save({"model": model.state_dict()}, checkpoint_id="dcp")
torch.nn.init.constant_(model.weight, float("nan"))
Accelerator(cpu=True).save_model(model, "accelerate")
save({"model": model.state_dict()}, checkpoint_id="dcp")
checkpoint_gate.uninstall()
assert not hasattr(Accelerator.save_model, "__wrapped__")
"""


def test_a_framework_that_is_imported_after_the_gate_was_put_up(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LATE)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(tmp_path)) == ["accelerate", "dcp", "nonfinite-accelerate", "nonfinite-dcp"]
    assert is_good(str(tmp_path / "accelerate")) and not is_good(str(tmp_path / "nonfinite-accelerate"))
