"""Lightning: a `LightningModule` with its optimizer, and a builder of the `Trainer`."""

TEMPLATE = """#: header
#: run
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import nanwatch

#: learning_rate
LEARNING_RATE = @LEARNING_RATE@

#: clip
CLIP_NORM = @CLIP_NORM@

#: total_steps
TOTAL_STEPS = @TOTAL_STEPS@

#: warmup_steps
WARMUP_STEPS = @WARMUP_STEPS@

#: weight_decay
WEIGHT_DECAY = 0.01

#: label_smoothing
LABEL_SMOOTHING = 0.1

#: batch_size
BATCH_SIZE = 8


def make_loader(dataset, batch_size=BATCH_SIZE):
    #: drop_last
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True)
    if len(loader) == 0:
        raise ValueError("@SAY_EMPTY@")
    return loader


class StableModule(L.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model.float()
        self.loss_function = nn.CrossEntropyLoss(label_smoothing=LABEL_SMOOTHING)
        self.losses = []

    def training_step(self, batch, batch_index):
        inputs, targets = batch
        loss = self.loss_function(self.model(inputs), targets)
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self):
        #: adamw
        matrices = [p for p in self.parameters() if p.requires_grad and p.dim() > 1]
        others = [p for p in self.parameters() if p.requires_grad and p.dim() <= 1]
        groups = [
            {"params": matrices, "weight_decay": WEIGHT_DECAY},
            {"params": others, "weight_decay": 0.0},
        ]
        #: epsilon
        optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, eps=1e-8)
        #: schedule_only
        scheduler = nanwatch.stabilise(
            optimizer, total_steps=TOTAL_STEPS, warmup_steps=WARMUP_STEPS, clip_norm=None
        )
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
    #: demo
    torch.manual_seed(0)
    inputs = torch.randn(64, 8)
    dataset = TensorDataset(inputs, (inputs[:, 0] > 0).long())
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    settings = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    losses = train(model, dataset, max_steps=min(TOTAL_STEPS, 60), **settings)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
"""
