"""Lightning: a `LightningModule` with its optimizer, and a builder of the `Trainer`."""

TEMPLATE = """#: header
#: run
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import nanwatch

#+ settings


#+ making


#+ schedule_only


class StableModule(L.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model.float()
        self.loss_function = make_loss()
        self.losses = []

    def training_step(self, batch, batch_index):
        inputs, targets = batch
        loss = self.loss_function(self.model(inputs), targets)
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self):
        optimizer = make_optimizer(self)
        scheduler = make_scheduler(optimizer)
        #: lightning_interval
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


def make_trainer(**settings):
    wanted = {
        "max_steps": TOTAL_STEPS,
        #: precision
        "precision": "32-true",
        #: lightning_clip
        "gradient_clip_val": CLIP_NORM,
        "gradient_clip_algorithm": "norm",
        #: lightning_anomaly
        "detect_anomaly": False,
    }
    return L.Trainer(**{**wanted, **settings})


def train(model, dataset, **settings):
    module = StableModule(model)
    #: watch
    with nanwatch.watch(module, policy="raise"):
        make_trainer(**settings).fit(module, make_loader(dataset))
    return [loss.item() for loss in module.losses]


if __name__ == "__main__":
#+ demo
    settings = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    losses = train(model, dataset, max_steps=min(TOTAL_STEPS, 60), **settings)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
"""
