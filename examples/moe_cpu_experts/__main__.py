"""Text from a mixture of experts whose experts run on the CPU.

    python examples/moe_cpu_experts
    python examples/moe_cpu_experts --list
    nanwatch run examples/moe_cpu_experts --fault product-overflow

The checkpoint is made up, so the text is gibberish; the way it is computed is that of a real engine: a loader
process puts the experts' weights into shared memory, the device does embedding, attention and routing, and
for each layer the hidden states go to the host, through a pool of worker threads, and back.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch
from checkpoint import load_dense, write_checkpoint
from faults import FAULTS
from link import Link
from model import ALPHABET, Decoder
from settings import Job, Settings
from shared_weights import attach, loader_running, reserve
from workers import Workers

PROMPTS = ("the river ", "a warm day", "who wrote ")


def encode(prompts: tuple[str, ...]) -> torch.Tensor:
    return torch.tensor([[ALPHABET.index(letter) for letter in prompt] for prompt in prompts])


def decode(ids: torch.Tensor) -> list[str]:
    return ["".join(ALPHABET[i] for i in row).replace("\n", "/") for row in ids.tolist()]


def sample(logits: torch.Tensor, keep: int = 8, temperature: float = 0.8) -> torch.Tensor:
    """The next token of each sequence (batch, 1), from its `keep` best."""
    least = logits.topk(keep, dim=-1).values[:, -1:]
    kept = logits.masked_fill(logits < least, float("-inf"))
    return torch.multinomial(torch.softmax(kept / temperature, dim=-1), num_samples=1)


@torch.no_grad()
def generate(model: Decoder, ids: torch.Tensor, tokens: int) -> torch.Tensor:
    for _ in range(tokens):
        ids = torch.cat([ids, sample(model(ids))], dim=1)
    return ids


def build(job: Job, weights: list, workers: Workers) -> Decoder:
    model = Decoder(job.settings)
    load_dense(model, job.checkpoint)
    model.to(job.device).eval()
    link = Link(job.settings, job.device)
    for block, of_layer in zip(model.blocks, weights, strict=True):
        block.experts.serve_from(of_layer, workers, link)
    return model


def run(job: Job) -> None:
    settings = job.settings
    segment = reserve(settings)
    with loader_running(segment, job.checkpoint, settings), closing(Workers(settings)) as workers:
        model = build(job, attach(segment, settings), workers)
        torch.manual_seed(1)
        for text in decode(generate(model, encode(PROMPTS).to(job.device), job.tokens)):
            print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fault", choices=FAULTS, help="what goes wrong")
    parser.add_argument("--list", action="store_true", help="the faults, a line each")
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = parser.parse_args()
    if asked.list:
        for name, fault in FAULTS.items():
            print(f"{name}\t{fault.sentence}")
        return
    fault = FAULTS.get(asked.fault)
    if fault is not None and fault.needs_gpu and not asked.device.startswith("cuda"):
        print(f"--fault {asked.fault} needs a GPU, and this run is on {asked.device}", file=sys.stderr)
        sys.exit(2)
    job = Job(Settings(), device=asked.device, tokens=asked.tokens)
    job = job if fault is None else fault.changed(job)
    with tempfile.TemporaryDirectory() as folder:
        job = replace(job, checkpoint=Path(folder))
        write_checkpoint(job.checkpoint, job.settings, dict(job.gains))
        if fault is not None:
            fault.damage(job.checkpoint)
        run(job)


if __name__ == "__main__":
    main()
