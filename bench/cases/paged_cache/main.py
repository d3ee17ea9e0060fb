import torch
from torch import nn

torch.use_deterministic_algorithms(True)


class PagedCache(nn.Module):
    """Keys and values of one conversation in pages that are taken as they are needed."""

    def __init__(self, pages, page, dim):
        super().__init__()
        self.page = page
        self.register_buffer("keys", torch.zeros(pages, page, dim), persistent=False)
        self.register_buffer("values", torch.empty(pages, page, dim), persistent=False)
        self.length = 0

    def append(self, k, v):
        at = divmod(self.length, self.page)
        self.keys[at], self.values[at] = k, v
        self.length += 1

    def read(self):
        used = -(-self.length // self.page)
        return self.keys[:used].flatten(0, 1), self.values[:used].flatten(0, 1)


class Attention(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.cache = PagedCache(pages=8, page=4, dim=dim)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3)
        self.cache.append(k, v)
        keys, values = self.cache.read()
        scores = keys @ q / q.numel() ** 0.5
        position = torch.arange(len(keys))
        scores = scores.masked_fill(position >= self.cache.length, float("-inf"))
        return x + self.out(scores.softmax(dim=0) @ values)

    @torch.no_grad()
    def prefill(self, prompt):
        for x in prompt:
            _, k, v = self.qkv(x).chunk(3)
            self.cache.append(k, v)


torch.manual_seed(0)
layer = Attention().eval()
prompt = torch.randn(3, 16)
layer.prefill(prompt)
x = prompt[-1]
with torch.no_grad():
    for token in range(4):
        x = layer(x)
        print(token, layer.cache.length, round(x.norm().item(), 4))
