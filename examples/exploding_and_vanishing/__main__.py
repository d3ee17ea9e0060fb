"""A deep MLP, an RNN and a transformer that train well, and the ways in which they explode or vanish.

python examples/exploding_and_vanishing --model rnn
python examples/exploding_and_vanishing --list
nanwatch run examples/exploding_and_vanishing --fault high-learning-rate
"""

import argparse
import tempfile
from pathlib import Path

import damage
import numpy as np
import tables
import torch
from safetensors.torch import load_file, save_file
from settings import FAULTS, MODELS, Settings, settings
from torch import nn


def prepare(folder: Path, chosen: Settings, fault: str | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The table, by way of a file."""
    table = chosen.table(np.random.default_rng(0))
    if fault == "bad-data":
        table[70, 4] = np.nan
    if fault == "bad-labels":
        table[70, -1] = np.nan
    if fault == "label-out-of-range":
        table[70, -1] = tables.CLASSES
    tables.write(folder / "table.csv", table)
    x, y = tables.read(folder / "table.csv")
    return x.to(chosen.inputs), y.to(chosen.targets)


def resume(model: nn.Module, folder: Path, fault: str | None) -> None:
    """Go on from the last checkpoint of an earlier run: here, from one that was just begun."""
    path = folder / "last.safetensors"
    save_file(model.state_dict(), path)
    if fault == "bad-checkpoint":
        damage.overwrite(path, "blocks.2.linear.weight", float("nan"), count=64)
    model.load_state_dict(load_file(path))


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, chosen: Settings, fault: str | None) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=chosen.rate, momentum=0.9)
    device = next(model.parameters()).device
    order = torch.cat([torch.randperm(len(x)) for _ in range(1 + chosen.steps * chosen.batch // len(x))])
    for step, rows in enumerate(order.split(chosen.batch)[: chosen.steps]):
        loss = chosen.loss(model(x[rows].to(device)), y[rows].to(device))
        optimizer.zero_grad()
        loss.backward()
        if chosen.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), chosen.clip)
        optimizer.step()
        if fault == "flipped-bit" and step == 6:
            damage.flip_bit(model.blocks[1].linear.weight, 2, 5, bit=30)
        print(f"step {step:2d}  loss {loss.item():.4g}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, default="mlp", help="without a fault: what is trained")
    parser.add_argument("--fault", choices=FAULTS, help="let this go wrong; it chooses its model")
    parser.add_argument("--list", action="store_true", help="print the faults")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name}\t{what}" for name, what in FAULTS.items()))
        return
    chosen = settings(options.model, options.fault)
    in_host_memory = options.fault == "flipped-bit"
    device = "cuda" if torch.cuda.is_available() and not in_host_memory else "cpu"
    torch.manual_seed(0)
    model = chosen.model(**chosen.model_options).to(device)
    with tempfile.TemporaryDirectory() as folder:
        x, y = prepare(Path(folder), chosen, options.fault)
        resume(model, Path(folder), options.fault)
    train(model, x, y, chosen, options.fault)


if __name__ == "__main__":
    main()
