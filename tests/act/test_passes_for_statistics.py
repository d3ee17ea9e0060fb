"""Passes over the data that only collect the statistics of BatchNorm, after the weights were averaged: a bad
batch among them leaves none behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import StochasticWeightAveraging
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.swa_utils import update_bn
from torch.utils.data import DataLoader, TensorDataset

import nanwatch

BAD = 2


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


def batches(bad: bool) -> list[Tensor]:
    torch.manual_seed(1)
    xs = list(torch.randn(6, 8, 4))
    if bad:
        xs[BAD][3, 1] = torch.nan
    return xs


def test_of_torch(tmp_path: Path) -> None:
    model, expected = network(), network()
    with nanwatch.watch(model, policy="skip", dir=tmp_path, explain=False) as watch:
        update_bn(batches(True), model)
    update_bn([x for i, x in enumerate(batches(False)) if i != BAD], expected)
    assert len(watch.incidents) == 1
    for name, tensor in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


class Trained(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = network()
        self.collected: list[Tensor] = []

    def training_step(self, batch: Any, index: int) -> Tensor:
        x = batch[0]
        if self.current_epoch == 4:  # the pass that Lightning adds
            statistic = self.net[1].running_mean
            assert isinstance(statistic, Tensor)
            self.collected.append(statistic.clone())
            if index == BAD:
                x = torch.full_like(x, torch.nan)
        return self.net(x).square().mean()

    def configure_optimizers(self) -> SGD:
        return SGD(self.parameters(), lr=0.01)


def test_of_lightning(tmp_path: Path) -> None:
    model = Trained()
    data = DataLoader(TensorDataset(torch.stack(batches(False)).flatten(0, 1)), batch_size=8)
    trainer = lightning.Trainer(
        max_epochs=4,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        callbacks=[StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=2)],
    )
    with nanwatch.watch(policy="skip", dir=tmp_path, explain=False) as watch:
        trainer.fit(model, data)
    assert len(watch.incidents) == 1 and model.collected[BAD + 1].isnan().all()
    assert torch.equal(model.collected[-1], model.collected[BAD]), "what was collected before it stays"
    assert all(t.isfinite().all() for t in model.net.state_dict().values())
