"""A classifier over bags of feature sequences with masked attention pooling; one bag is empty.

nanwatch run examples/attention_pooling.py
"""

import torch
import torch.nn.functional as F
from torch import nn


class AttentionPool(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = self.score(x).squeeze(-1).masked_fill(~mask, float("-inf"))
        weights = F.softmax(scores, dim=-1)
        return torch.einsum("bt,btd->bd", weights, x)


class BagClassifier(nn.Module):
    def __init__(self, dim: int = 16, classes: int = 3) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, dim), nn.GELU(), nn.Dropout(0.1))
        self.pool = AttentionPool(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.pool(self.encoder(x), mask))


def batches(steps: int):
    for step in range(steps):
        x = torch.randn(6, 10, 8)
        lengths = torch.randint(3, 11, (6,))
        if step == 12:
            lengths[4] = 0  # a bag in which nothing was detected
        yield x, torch.arange(10) < lengths[:, None], torch.randint(0, 3, (6,))


def main() -> None:
    torch.manual_seed(0)
    model = BagClassifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (x, mask, y) in enumerate(batches(20)):
        loss = F.cross_entropy(model(x, mask), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step:2d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
