"""Trains a character model in two sessions; its causal mask of -inf is a buffer and travels in the checkpoint."""

import tempfile
from pathlib import Path

import torch
from torch import nn

TEXT = "the quick brown fox jumps over the lazy dog and runs away from the slow red hen "
LETTERS = sorted(set(TEXT))


class CharModel(nn.Module):
    def __init__(self, length=16, dim=32):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), dim)
        self.places = nn.Parameter(torch.zeros(length, dim))
        self.layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(dim, len(LETTERS))
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))
        self.register_buffer("best", torch.tensor(float("inf")))

    def forward(self, ids):
        return self.head(self.layer(self.letters(ids) + self.places, src_mask=self.mask))


def samples(count=16, length=16):
    ids = torch.tensor([LETTERS.index(c) for c in TEXT * 2])
    starts = torch.randint(0, len(TEXT), (count,))
    return torch.stack([ids[s : s + length + 1] for s in starts])


def session(path, steps):
    model = CharModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    for step in range(steps):
        ids = samples()
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.best.copy_(torch.minimum(model.best, loss.detach()))
        print(step, f"{loss.item():.4f} best {model.best.item():.4f}")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


torch.manual_seed(0)
with tempfile.TemporaryDirectory() as folder:
    for _ in range(2):
        session(Path(folder, "chars.pt"), steps=5)
