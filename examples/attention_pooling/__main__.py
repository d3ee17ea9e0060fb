"""A classifier over bags of feature sequences with attention pooling, trained with Accelerate.

    python examples/attention_pooling                       one process, CPU or GPU
    torchrun --nproc-per-node 2 examples/attention_pooling  several (accelerate launch does as well)
    python examples/attention_pooling --list                what can be made to go wrong
    nanwatch run examples/attention_pooling --fault empty-bag

Leaves training_history.csv, event files for TensorBoard and the weights in --output.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from bags import CLASSES, UNLABELLED, BagDataset, collate, make_bags
from faults import FAULTS, NO_FAULT, Fault
from history import History
from model import BagClassifier
from settings import Settings
from torch.utils.data import DataLoader


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fault", choices=FAULTS, metavar="NAME", help="make this go wrong; see --list")
    parser.add_argument("--list", action="store_true", help="the faults and what is wrong in each")
    parser.add_argument("--epochs", type=int, default=Settings.epochs)
    parser.add_argument("--precision", choices=["no", "bf16", "fp16"], default=Settings.precision)
    parser.add_argument("--output", type=Path, default=Path("runs", "attention_pooling"))
    parser.add_argument("--no-tensorboard", action="store_true")
    return parser.parse_args()


def learning_rates(steps: int, warmup: int) -> np.ndarray:
    """Linear warm-up, then a cosine: the factor for each step."""
    step = np.arange(steps)
    return np.minimum(step / warmup, 0.5 + 0.5 * np.cos(np.pi * step / steps))


def loss_of(output: torch.Tensor, weights: torch.Tensor, labels: torch.Tensor, s: Settings) -> torch.Tensor:
    if s.one_vs_rest:
        loss = one_vs_rest(output, F.one_hot(labels, CLASSES))
    else:
        loss = F.cross_entropy(output, labels, ignore_index=UNLABELLED, label_smoothing=0.05)
    if s.entropy_weight:  # few instances should decide
        entropy = -(weights * weights.log()).sum(dim=1).mean()
        loss = loss + s.entropy_weight * entropy
    return loss


def one_vs_rest(p: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Each class by itself: a bag may show more than one."""
    log_p, log_rest = torch.log(p), torch.log(1 - p)
    return -(target * log_p + (1 - target) * log_rest).sum(dim=1).mean()


def train_epoch(accelerator: Accelerator, model, optimizer, scheduler, loader, s: Settings) -> float:
    model.train()
    losses = []
    for batch in loader:
        with accelerator.autocast():
            output, weights = model(batch["features"], batch["mask"])
            loss = loss_of(output, weights, batch["labels"], s)
        optimizer.zero_grad()
        accelerator.backward(loss)
        if s.clip:
            accelerator.clip_grad_norm_(model.parameters(), s.clip)
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
    return accelerator.reduce(torch.stack(losses).mean(), "mean").item()


@torch.no_grad()
def validate(accelerator: Accelerator, model, loader, s: Settings) -> tuple[float, float]:
    """Mean loss and accuracy."""
    model.eval()
    losses, right = [], []
    for batch in loader:
        output, weights = model(batch["features"], batch["mask"])
        losses.append(loss_of(output, weights, batch["labels"], s))
        right.append(accelerator.gather_for_metrics(output.argmax(dim=1) == batch["labels"]))
    loss = accelerator.reduce(torch.stack(losses).mean(), "mean").item()
    return loss, torch.cat(right).float().mean().item()


def train(s: Settings, fault: Fault, options: argparse.Namespace) -> None:
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), mixed_precision=s.precision)
    set_seed(s.seed)
    train_bags, val_bags = make_bags(s.bags, seed=1), make_bags(32, seed=2)
    fault.damage(train_bags)

    model = BagClassifier(s)
    if s.resume is not None:
        model.load_state_dict(torch.load(s.resume, weights_only=True))
    optimizers = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    optimizer = optimizers[s.optimizer](model.parameters(), lr=s.rate)
    loader = DataLoader(
        BagDataset(train_bags, s.keep), s.batch_size, shuffle=True, drop_last=s.drop_last, collate_fn=collate
    )
    val_loader = DataLoader(BagDataset(val_bags), s.batch_size, collate_fn=collate)
    factors = learning_rates(s.epochs * len(loader), s.warmup)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: factors[min(step, len(factors) - 1)]
    )
    model, optimizer, loader, val_loader, scheduler = accelerator.prepare(
        model, optimizer, loader, val_loader, scheduler
    )

    history = None
    if accelerator.is_main_process:
        history = History(options.output, tensorboard=not options.no_tensorboard)
    for epoch in range(1, s.epochs + 1):
        train_loss = train_epoch(accelerator, model, optimizer, scheduler, loader, s)
        val_loss, accuracy = validate(accelerator, model, val_loader, s)
        accelerator.print(
            f"Epoch {epoch}/{s.epochs} | Train Loss: {train_loss:.4f} | Val Loss: {val_loss:.4f}"
            f" | Val Acc: {accuracy:.3f}",
            flush=True,
        )
        if history is not None:
            rate = scheduler.get_last_lr()[0]
            history.add(epoch, train_loss=train_loss, val_loss=val_loss, val_accuracy=accuracy, rate=rate)
            torch.save(accelerator.unwrap_model(model).state_dict(), options.output / "weights.pt")
    accelerator.end_training()


def main() -> None:
    options = arguments()
    if options.list:
        for name, fault in FAULTS.items():
            print(f"{name}\t{fault.what}")
        sys.exit()
    s = Settings(epochs=options.epochs, precision=options.precision)
    fault = FAULTS.get(options.fault, NO_FAULT)
    train(fault.change(s), fault, options)


if __name__ == "__main__":
    main()
