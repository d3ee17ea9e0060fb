"""Hugging Face accelerate: the `Accelerator` with its settings, and a loop that clips as it wants."""

TEMPLATE = """#: header
#: accelerate_run
import torch
from accelerate import Accelerator
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

#: accumulation
ACCUMULATION_STEPS = 1


def make_accelerator(**settings):
    #: accelerate_precision
    wanted = {"mixed_precision": "no", "gradient_accumulation_steps": ACCUMULATION_STEPS}
    return Accelerator(**{**wanted, **settings})


def make_loader(dataset, batch_size=BATCH_SIZE):
    #: drop_last
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True)
    if len(loader) == 0:
        raise ValueError("@SAY_EMPTY@")
    return loader


def make_loss():
    return nn.CrossEntropyLoss(label_smoothing=LABEL_SMOOTHING)


def make_optimizer(model):
    #: adamw
    matrices = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    others = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": others, "weight_decay": 0.0},
    ]
    #: epsilon
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, eps=1e-8)


def make_scheduler(optimizer):
    #: schedule_only
    return nanwatch.stabilise(
        optimizer, total_steps=TOTAL_STEPS, warmup_steps=WARMUP_STEPS, clip_norm=None
    )


def train_step(accelerator, model, batch, loss_function, optimizer, scheduler):
    inputs, targets = batch
    with accelerator.accumulate(model):
        loss = loss_function(model(inputs), targets)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            #: accelerate_clip
            accelerator.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        if accelerator.sync_gradients and not accelerator.optimizer_step_was_skipped:
            scheduler.step()
        optimizer.zero_grad()
    return loss.item()


def train(model, dataset, steps=TOTAL_STEPS, accelerator=None):
    accelerator = accelerator or make_accelerator()
    loss_function = make_loss()
    model = model.float().train()
    model, optimizer, loader = accelerator.prepare(
        model, make_optimizer(model), make_loader(dataset)
    )
    #: accelerate_scheduler
    scheduler = make_scheduler(optimizer)
    losses = []
    #: watch
    with nanwatch.watch(policy="raise"):
        while len(losses) < steps * ACCUMULATION_STEPS:
            for batch in loader:
                losses.append(
                    train_step(accelerator, model, batch, loss_function, optimizer, scheduler)
                )
                if len(losses) == steps * ACCUMULATION_STEPS:
                    break
    return losses


if __name__ == "__main__":
    #: demo
    torch.manual_seed(0)
    inputs = torch.randn(64, 8)
    dataset = TensorDataset(inputs, (inputs[:, 0] > 0).long())
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    losses = train(model, dataset, steps=min(TOTAL_STEPS, 60))
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
"""
