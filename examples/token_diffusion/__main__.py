"""Diffusion on images of tokens: each token is a pixel, its id in base 256 the colour.

python examples/token_diffusion          trains on the CPU or on a GPU, in float16 with a GradScaler
python examples/token_diffusion --list   what can be made to go wrong
nanwatch run examples/token_diffusion --fault lost-eps
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import torch
from colours import colours_of, ids_of
from faults import FAULTS, NO_FAULT, Fault
from model import Denoiser
from schedule import Schedule, add_noise, log_ratio, remove_noise
from settings import Settings
from texts import PROMPT, collate, make_texts
from torch import nn
from torch.utils.data import DataLoader

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "float32": torch.float32}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fault", choices=FAULTS, metavar="NAME", help="make this go wrong; see --list")
    parser.add_argument("--list", action="store_true", help="the faults and what is wrong in each")
    parser.add_argument("--steps", type=int, default=Settings.steps)
    parser.add_argument("--precision", choices=DTYPES, default=Settings.precision)
    return parser.parse_args()


class Training:
    def __init__(self, s: Settings, fault: Fault) -> None:
        torch.manual_seed(s.seed)
        self.s = s
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.texts = make_texts(s.texts, s.vocabulary)
        fault.damage(self.texts)
        self.schedule = Schedule(s.noise_steps, s.first_signal, s.last_signal, s.draw_evenly)
        self.model = Denoiser(s)
        fault.load(self.model)
        self.model.to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=s.rate)
        self.scaler = torch.amp.GradScaler(self.device.type, growth_interval=4, enabled=s.precision == "fp16")

    def batches(self) -> Iterator[dict[str, torch.Tensor]]:
        """Without end."""
        loader = DataLoader(self.texts, self.s.batch_size, shuffle=True, collate_fn=collate)
        while True:
            for batch in loader:
                yield {name: tensor.to(self.device) for name, tensor in batch.items()}

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        image = colours_of(batch["ids"])
        noise = torch.randn_like(image)
        signal = self.schedule.draw(len(image)).to(self.device)
        noisy = add_noise(image, noise, signal)
        found = self.predict(noisy, signal, batch)
        if self.s.distance == "euclidean":
            filled = batch["filled"].unsqueeze(-1)
            error = ((found - noise) * filled).square().sum(dim=-1).sqrt()
        else:
            error = (found - noise).square().mean(dim=-1)
        return self.mean_over_asked(error, batch["asked"])

    def predict(self, noisy: torch.Tensor, signal: torch.Tensor, batch: dict) -> torch.Tensor:
        with torch.autocast(
            self.device.type, DTYPES[self.s.precision], enabled=self.s.precision != "float32"
        ):
            found = self.model(noisy, log_ratio(signal), batch["ids"][:, :PROMPT], batch["filled"])
        return found.float()

    def mean_over_asked(self, error: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
        """Each text counts the same, however long it is."""
        per_text = (error * asked).sum(dim=1) / asked.sum(dim=1)
        return per_text.mean()

    def update(self, loss: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        if self.s.clip_first:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.s.clip)
            self.scaler.unscale_(self.optimizer)
            self.optimizer.step()
        else:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.s.clip)
            self.scaler.step(self.optimizer)
        self.scaler.update()

    @torch.no_grad()
    def colour_error(self, batch: dict[str, torch.Tensor]) -> float:
        """How far the restored ids are from the true ones when a little noise is taken off an image."""
        image = colours_of(batch["ids"])
        signal = torch.full((len(image),), 0.99, device=self.device)
        noise = torch.randn_like(image)
        noisy = add_noise(image, noise, signal)
        restored = ids_of(remove_noise(noisy, self.predict(noisy, signal, batch), signal))
        off = (restored // 256 - batch["ids"] // 256).abs().float()
        return off[batch["asked"]].mean().item()


def train(s: Settings, fault: Fault) -> None:
    training = Training(s, fault)
    losses = []
    for step, batch in zip(range(1, s.steps + 1), training.batches(), strict=False):
        loss = training.loss(batch)
        training.update(loss)
        losses.append(loss.item())
        if step % 10 == 0:
            mean, scale = sum(losses[-10:]) / 10, training.scaler.get_scale()
            print(f"step {step}/{s.steps} | loss {mean:.4f} | scale {scale:g}", flush=True)
    print(f"the first digit of a restored token is off by {training.colour_error(batch):.1f} of 255")


def main() -> None:
    options = arguments()
    if options.list:
        for name, fault in FAULTS.items():
            print(f"{name}\t{fault.what}")
        sys.exit()
    fault = FAULTS.get(options.fault, NO_FAULT)
    train(fault.change(Settings(steps=options.steps, precision=options.precision)), fault)


if __name__ == "__main__":
    main()
