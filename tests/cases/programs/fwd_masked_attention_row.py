import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, keep):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / math.sqrt(q.size(-1))
        scores = scores.masked_fill(~keep[:, None, :], float("-inf"))
        weights = scores.softmax(dim=-1)  # BIRTH
        return self.proj(weights @ v)


class Classifier(nn.Module):
    def __init__(self, vocab=20, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.attn = Attention(dim)
        self.head = nn.Linear(dim, 3)

    def forward(self, ids):
        keep = ids != 0
        return self.head(self.attn(self.embed(ids), keep).mean(dim=1))


torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(6):
    ids = torch.randint(1, 20, (5, 7))
    ids[:, 5:] = 0
    if step == 4:
        ids[2] = 0  # an empty sentence
    loss = nn.functional.cross_entropy(model(ids), torch.randint(0, 3, (5,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 3))

# truth:
# {"phase": "forward", "op": "aten._softmax.default", "module": "attn", "step": 4, "kind": "nan", "samples": [2], "cause": "fully-masked-row", "exit": 3}
