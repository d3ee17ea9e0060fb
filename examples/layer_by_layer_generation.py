"""Text generation, one layer after the other: a decoder built from a config, with weights from a file.

    python examples/layer_by_layer_generation.py
    python examples/layer_by_layer_generation.py --list
    nanwatch run examples/layer_by_layer_generation.py --fault bad-weights

The weights are random, so the text means nothing; everything that is done with them is the real thing.
"""

import argparse
import json
import os
import struct
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

FAULTS = {
    "bad-weights": "the checkpoint holds NaN in one layer: the training it was saved from had diverged",
    "missing-keys": "the checkpoint has other names for one layer's weights, and the loader is not strict",
    "meta-tensors": "the rotary tables were built on the meta device and nothing ever fills them",
    "ids-out-of-range": "the tokenizer knows more tokens than the model has rows in its embedding",
    "zero-variance": "RMSNorm has no eps and meets the embedding of the padding token, which is all zeros",
    "vanishing-eps": "RMSNorm has an eps of 1e-8, which is zero in float16",
    "half-precision": "the model runs in float16, and one feature of an MLP is larger than float16 can hold",
    "logits-overflow": "the config lacks the divisor of the logits, and exp of them overflows",
    "zero-temperature": "somebody asked for greedy decoding by a temperature of 0",
    "bad-probabilities": "every token that top-k keeps has just been said and is forbidden: nothing is left",
}
CHARACTERS = "\0 abcdefghijklmnopqrstuvwxyz.,;:!?'-0123456789ABCDEFGHIJKLMNOPQR"
PADDING = 0


@dataclass(frozen=True)
class Config:
    vocabulary: int = len(CHARACTERS)
    width: int = 64
    layers: int = 4
    heads: int = 4
    inner: int = 160
    longest: int = 64
    norm_eps: float = 1e-6
    logits_divisor: float = 16.0
    tables_in_file: bool = False
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Sampling:
    temperature: float = 0.8
    top_k: int = 20
    top_p: float = 0.95
    not_again_within: int = 8
    """A token may come again only after this many others."""


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean_square = x.square().mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.eps) * self.weight


class Rotary(nn.Module):
    """Turns pairs of features by an angle that grows with the position."""

    def __init__(self, size: int, longest: int) -> None:
        super().__init__()
        self.register_buffer("cos", torch.empty(longest, size), persistent=False)
        self.register_buffer("sin", torch.empty(longest, size), persistent=False)
        self.fill()

    def fill(self) -> None:
        longest, size = self.cos.shape
        speeds = 10000.0 ** (-torch.arange(0, size, 2, device=self.cos.device) / size)
        angles = torch.arange(longest, device=self.cos.device)[:, None] * speeds.repeat(2)
        self.cos.copy_(angles.cos())
        self.sin.copy_(angles.sin())

    def forward(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.cos[:length], self.sin[:length]


def turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.q = nn.Linear(config.width, config.width, bias=False)
        self.k = nn.Linear(config.width, config.width, bias=False)
        self.v = nn.Linear(config.width, config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, tables: tuple[torch.Tensor, ...]) -> torch.Tensor:
        batch, length, width = x.shape

        def split(y: torch.Tensor) -> torch.Tensor:
            return y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        q, k, v = turn(split(self.q(x)), *tables), turn(split(self.k(x)), *tables), split(self.v(x))
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.inner, bias=False)
        self.up = nn.Linear(config.width, config.inner, bias=False)
        self.down = nn.Linear(config.inner, config.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = F.silu(self.gate(x)) * self.up(x)
        return self.down(inner)


class Layer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1 = RMSNorm(config.width, config.norm_eps)
        self.attention = Attention(config)
        self.norm2 = RMSNorm(config.width, config.norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, tables: tuple[torch.Tensor, ...]) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), mask, tables)
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocabulary, config.width, padding_idx=PADDING)
        self.rotary = Rotary(config.width // config.heads, config.longest)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width, config.norm_eps)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)


# The file


def write_checkpoint(path: Path, fault: str | None) -> None:
    """What a training run would have left: here, the weights that a fresh model begins with."""
    torch.manual_seed(1)
    state = Decoder(Config()).state_dict()
    state["head.weight"] *= 60.0
    state["layers.1.mlp.gate.weight"][7] *= 400.0  # one feature far above the others, as large decoders
    state["layers.1.mlp.up.weight"][7] *= 800.0  # have them in an early layer
    state["layers.1.mlp.down.weight"][:, 7] *= 1e-5
    if fault == "missing-keys":
        state["layers.3.mlp.w3.weight"] = state.pop("layers.3.mlp.up.weight")
    save_file(state, path)
    if fault == "bad-weights":
        overwrite(path, "layers.2.attention.out.weight", float("nan"))


def overwrite(path: Path, name: str, value: float, count: int = 100) -> None:
    """The first numbers of one tensor, in the file itself: no program checked what it saved."""
    content = bytearray(path.read_bytes())
    header = int.from_bytes(content[:8], "little")
    begin = 8 + header + json.loads(content[8 : 8 + header])[name]["data_offsets"][0]
    content[begin : begin + 4 * count] = struct.pack("<f", value) * count
    path.write_bytes(content)


def load(config: Config, path: Path, device: str) -> Decoder:
    with torch.device("meta"):
        model = Decoder(config)  # no memory is spent on weights that the file brings anyway
    model.to_empty(device=device)
    if not config.tables_in_file:
        model.rotary.fill()
    report = model.load_state_dict(load_file(path, device), strict=False)
    missing, unknown = len(report.missing_keys), len(report.unexpected_keys)
    print(f"loaded {path.name}: {missing} keys missing, {unknown} unknown")
    return model.to(config.dtype).eval()


# Generating


def encode(prompts: list[str], characters: str) -> torch.Tensor:
    """Ids, padded on the left, so that all prompts end at the same place."""
    longest = max(len(prompt) for prompt in prompts)
    padded = [prompt.rjust(longest, characters[PADDING]) for prompt in prompts]
    return torch.tensor([[characters.index(c) for c in prompt] for prompt in padded])


def next_logits(model: Decoder, ids: torch.Tensor) -> torch.Tensor:
    """Embedding, every layer, head: one after the other, as engines do that hold one layer at a time."""
    length = ids.shape[1]
    position = torch.arange(length, device=ids.device)
    seen = (position[None, :] <= position[:, None]) & (ids != PADDING)[:, None, None, :]
    mask = seen | torch.eye(length, dtype=torch.bool, device=ids.device)
    tables = model.rotary(length)
    hidden = model.embed(ids)
    for layer in model.layers:
        hidden = layer(hidden, mask, tables)
    logits = model.head(model.norm(hidden[:, -1]))
    return logits.float() / model.config.logits_divisor


def sample(logits: torch.Tensor, said: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Temperature, top-k, top-p, nothing that was just said, and a draw from what is left."""
    weights = torch.exp(logits / sampling.temperature)
    probabilities = weights / weights.sum(dim=-1, keepdim=True)
    ordered, order = probabilities.sort(dim=-1, descending=True)
    ordered[:, sampling.top_k :] = 0.0
    ordered[ordered.cumsum(dim=-1) - ordered > sampling.top_p] = 0.0
    probabilities = torch.zeros_like(probabilities).scatter(1, order, ordered)
    probabilities[:, PADDING] = 0.0
    probabilities.scatter_(1, said[:, -sampling.not_again_within :], 0.0)
    probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    return torch.multinomial(probabilities, num_samples=1)


@torch.no_grad()
def generate(model: Decoder, ids: torch.Tensor, sampling: Sampling, tokens: int) -> torch.Tensor:
    for step in range(tokens):
        logits = next_logits(model, ids).cpu()  # drawing on the host: the same text on every device
        chosen = sample(logits, ids.cpu(), sampling)
        ids = torch.cat([ids, chosen.to(ids.device)], dim=1)
        print(f"step {step:2d}  largest logit {logits.max():6.2f}  {decode(chosen[:, 0])!r}")
    return ids


def decode(ids: torch.Tensor) -> str:
    return "".join(CHARACTERS[i] for i in ids.tolist() if i != PADDING)


def settings(fault: str | None) -> tuple[Config, Sampling, str]:
    """Config, sampling and the characters of the tokenizer, with what `--fault` makes of them."""
    changed = {
        "meta-tensors": {"tables_in_file": True},
        "zero-variance": {"norm_eps": 0.0},
        "vanishing-eps": {"norm_eps": 1e-8, "dtype": torch.float16},
        "half-precision": {"dtype": torch.float16},
        "logits-overflow": {"logits_divisor": 1.0},
    }
    sampled = {"zero-temperature": {"temperature": 0.0}, "bad-probabilities": {"top_k": 1}}
    characters = CHARACTERS + "\N{CURLY LOOP}" if fault == "ids-out-of-range" else CHARACTERS
    return (
        replace(Config(), **changed.get(fault, {})),
        replace(Sampling(), **sampled.get(fault, {})),
        characters,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fault", choices=FAULTS, help="let this go wrong")
    parser.add_argument("--list", action="store_true", help="print the faults")
    parser.add_argument("--tokens", type=int, default=24)
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name}\t{what}" for name, what in FAULTS.items()))
        return
    torch.use_deterministic_algorithms(True)  # the same text from the same weights, every time
    config, sampling, characters = settings(options.fault)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "decoder.safetensors")
        write_checkpoint(path, options.fault)
        model = load(config, path, device)
    torch.manual_seed(0)
    prompts = ["once upon a time", "the sea, the sea", "why?" + characters[-1]]
    ids = generate(model, encode(prompts, characters).to(device), sampling, options.tokens)
    for row in ids:
        print(decode(row))


if __name__ == "__main__":
    main()
