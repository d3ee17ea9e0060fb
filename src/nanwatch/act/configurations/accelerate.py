"""Hugging Face accelerate: the `Accelerator` with its settings, and a loop that clips as it wants."""

TEMPLATE = """#: header
#: accelerate_run
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import nanwatch

#+ settings

#: accumulation
ACCUMULATION_STEPS = 1


def make_accelerator(**settings):
    #: accelerate_precision
    wanted = {"mixed_precision": "no", "gradient_accumulation_steps": ACCUMULATION_STEPS}
    return Accelerator(**{**wanted, **settings})


#+ making


#+ schedule_only


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
#+ demo
    losses = train(model, dataset, steps=min(TOTAL_STEPS, 60))
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
"""
