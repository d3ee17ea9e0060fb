"""Generates chords with a decoder whose cache is reserved with torch.empty; only the written part is ever read."""

import torch
from torch import nn

torch.use_deterministic_algorithms(True)


class Cache:
    def __init__(self, batch, capacity, dim):
        self.keys, self.values = torch.empty(batch, capacity, dim), torch.empty(batch, capacity, dim)
        self.length = 0

    def append(self, key, value):
        new = self.length + key.shape[1]
        self.keys[:, self.length : new], self.values[:, self.length : new] = key, value
        self.length = new
        return self.keys[:, :new], self.values[:, :new]


class ChordModel(nn.Module):
    def __init__(self, chords=24, dim=20, layers=2):
        super().__init__()
        self.chords = nn.Embedding(chords, dim)
        self.qkv = nn.ModuleList([nn.Linear(dim, 3 * dim) for _ in range(layers)])
        self.head = nn.Linear(dim, chords)

    def forward(self, ids, caches):
        x = self.chords(ids)
        for layer, cache in zip(self.qkv, caches, strict=True):
            query, key, value = layer(x).chunk(3, dim=-1)
            keys, values = cache.append(key, value)
            x = x + nn.functional.scaled_dot_product_attention(query, keys, values)
        return self.head(x[:, -1])


torch.manual_seed(3)
model = ChordModel().eval()
caches = [Cache(batch=2, capacity=32, dim=20) for _ in range(2)]
ids = torch.tensor([[0, 5, 7], [9, 2, 4]])
with torch.inference_mode():
    for beat in range(8):
        logits = model(ids, caches)
        scores, candidates = logits.topk(5)
        filtered = torch.full_like(logits, -torch.inf).scatter(1, candidates, scores)
        ids = torch.multinomial(filtered.softmax(dim=-1), 1)
        print(beat, ids.flatten().tolist())
