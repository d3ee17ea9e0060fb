"""Serves a decoder in batches of fixed size: a batch that is not full is filled up with empty requests."""

import torch
from torch import nn

BUCKET, LENGTH, DIM = 4, 8, 16


class PromptAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(DIM, DIM) for _ in range(3))

    def forward(self, x, lengths, cache):
        query, key, value = self.query(x), self.key(x), self.value(x)
        cache["key"][:, :LENGTH], cache["value"][:, :LENGTH] = key, value
        visible = torch.arange(LENGTH) < lengths[:, None]
        scores = query @ key.transpose(1, 2) / DIM**0.5
        weights = torch.exp(scores - scores.amax(-1, keepdim=True)) * visible[:, None]
        weights = weights / weights.sum(-1, keepdim=True)
        return weights @ value


class Decoder(nn.Module):
    def __init__(self, vocabulary=50):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, DIM)
        self.first, self.second = PromptAttention(), PromptAttention()
        self.head = nn.Linear(DIM, vocabulary)

    def forward(self, ids, lengths, caches):
        x = self.embed(ids)
        x = x + self.first(x, lengths, caches[0])
        x = x + self.second(x, lengths, caches[1])
        last = (lengths - 1).clamp(min=0)
        return self.head(x[torch.arange(len(x)), last])


def fill_bucket(prompts):
    ids = torch.zeros(BUCKET, LENGTH, dtype=torch.long)
    lengths = torch.zeros(BUCKET, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
        lengths[row] = len(prompt)
    return ids, lengths


torch.manual_seed(0)
model = Decoder().eval()
caches = [{name: torch.zeros(BUCKET, 2 * LENGTH, DIM) for name in ("key", "value")} for _ in range(2)]
arrivals = [
    [[3, 8, 1], [7, 7], [9, 2, 30, 4], [11]],
    [[5], [6, 40], [2, 2, 2], [1, 9]],
    [[12, 13, 14], [20, 21]],
    [[1, 2], [3, 4], [5, 6], [7, 8]],
]
with torch.no_grad():
    for batch, prompts in enumerate(arrivals):
        logits = model(*fill_bucket(prompts), caches)
        print(batch, logits.argmax(-1).tolist(), f"spread {logits.std().item():.4f}")
