"""Embed a tree of words in the Poincare ball, so that distance follows the tree."""

import torch
from torch import nn

WORDS = "thing animal plant dog cat horse tree flower oak birch rose tulip puppy poodle kitten".split()
IS_A = {
    "animal": "thing", "plant": "thing", "dog": "animal", "cat": "animal", "horse": "animal",
    "tree": "plant", "flower": "plant", "oak": "tree", "birch": "tree", "rose": "flower",
    "tulip": "flower", "puppy": "dog", "poodle": "dog", "kitten": "cat",
}  # fmt: skip


class PoincareEmbedding(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.points = nn.Embedding(words, width)
        nn.init.uniform_(self.points.weight, -1e-2, 1e-2)

    def forward(self, left, right):
        u, v = self.points(left), self.points(right)
        gap = (u - v).square().sum(dim=-1)
        room = (1 - u.square().sum(dim=-1)) * (1 - v.square().sum(dim=-1))
        return torch.acosh(1 + 2 * gap / room)


def pairs(negatives, generator):
    """Every child with its parent, and with some other words."""
    children = torch.tensor([WORDS.index(child) for child in IS_A])
    parents = torch.tensor([WORDS.index(parent) for parent in IS_A.values()])
    others = torch.randint(len(WORDS) - 1, (len(children), negatives), generator=generator)
    others = others + (others >= children[:, None])
    return children, torch.cat([parents[:, None], others], dim=1)


torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)
model = PoincareEmbedding(len(WORDS), 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(60):
    children, candidates = pairs(5, generator)
    distance = model(children[:, None].expand_as(candidates), candidates)
    loss = nn.functional.cross_entropy(-distance, torch.zeros(len(children), dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")
