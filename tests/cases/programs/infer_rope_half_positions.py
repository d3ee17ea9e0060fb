import torch
from torch import nn


class Rope(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / base ** (torch.arange(0, dim, 2) / dim))

    def forward(self, x, positions):
        t = positions.to(x.dtype)  # BIRTH
        angles = t[:, :, None] * self.inv_freq
        cos, sin = angles.cos(), angles.sin()
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Reader(nn.Module):
    def __init__(self, vocab=32, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.q, self.k, self.v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.rope = Rope(dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens, positions):
        x = self.embed(tokens)
        q, k = self.rope(self.q(x), positions), self.rope(self.k(x), positions)
        weights = torch.softmax(q @ k.transpose(1, 2) / 4, dim=-1)
        return self.head(x + weights @ self.v(x))


torch.manual_seed(0)
model = Reader().half().eval()
for window, start in enumerate([0, 30000, 60000, 65500]):
    tokens = torch.randint(0, 32, (2, 24))
    positions = torch.stack([torch.arange(start, start + 24), torch.arange(24)])
    with torch.inference_mode():
        logits = model(tokens, positions)
    print(window, logits[:, -1].argmax(-1).tolist())

# truth:
# {"phase": "forward", "op": ["aten._to_copy.default", "aten.to.dtype"], "module": "rope", "step": 3, "kind": "inf", "samples": [0], "cause": "half-overflow", "exit": 3}
