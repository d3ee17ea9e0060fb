"""A loop of one's own: loader, loss, optimizer, scheduler, `train_step` and `train`."""

TEMPLATE = """#: header
#: run
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import nanwatch

#+ settings


#+ making


def make_scheduler(optimizer):
    #: schedule
    return nanwatch.stabilise(
        optimizer, total_steps=TOTAL_STEPS, warmup_steps=WARMUP_STEPS, clip_norm=CLIP_NORM
    )


def train_step(model, batch, loss_function, optimizer, scheduler):
    inputs, targets = batch
    optimizer.zero_grad(set_to_none=True)
    loss = loss_function(model(inputs), targets)
    loss.backward()
    #: step_clips
    optimizer.step()
    scheduler.step()
    return loss.item()


def train(model, dataset, steps=TOTAL_STEPS):
    #: precision
    model = model.float().train()
    loader, loss_function = make_loader(dataset), make_loss()
    optimizer = make_optimizer(model)
    scheduler = make_scheduler(optimizer)
    losses = []
    #: watch
    with nanwatch.watch(model, optimizer, policy="raise"):
        while len(losses) < steps:
            for batch in loader:
                losses.append(train_step(model, batch, loss_function, optimizer, scheduler))
                if len(losses) == steps:
                    break
    return losses


if __name__ == "__main__":
#+ demo
    losses = train(model, dataset, steps=min(TOTAL_STEPS, 60))
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
"""
