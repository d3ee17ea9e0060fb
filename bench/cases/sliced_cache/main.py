import torch
from torch import nn

torch.use_deterministic_algorithms(True)


class KeyValueCache:
    """Memory for the longest answer, taken at once; only what has been written is ever read."""

    def __init__(self, longest, heads, dim):
        self.keys = torch.empty(heads, longest, dim)
        self.values = torch.empty(heads, longest, dim)
        self.length = 0

    def append(self, k, v):
        end = self.length + k.size(1)
        self.keys[:, self.length : end], self.values[:, self.length : end] = k, v
        self.length = end
        return self.keys[:, :end], self.values[:, :end]


class Attention(nn.Module):
    def __init__(self, dim=16, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, cache):
        q, k, v = self.qkv(x).view(len(x), 3, self.heads, -1).permute(1, 2, 0, 3)
        start = cache.length
        keys, values = cache.append(k, v)
        future = torch.arange(keys.size(1)) > torch.arange(start, start + len(x))[:, None]
        scores = (q @ keys.transpose(1, 2)).masked_fill(future, float("-inf"))
        made = scores.softmax(dim=-1) @ values
        return x + self.out(made.transpose(0, 1).flatten(1))


torch.manual_seed(0)
layer, head = Attention().eval(), nn.Linear(16, 16).eval()
with torch.inference_mode():
    for conversation in range(2):
        cache = KeyValueCache(longest=20, heads=2, dim=8)
        x = layer(torch.randn(4 + conversation, 16), cache)[-1:]
        for token in range(5):
            x = layer(torch.tanh(head(x)), cache)
            print(conversation, token, cache.length, round(x.norm().item(), 4))
