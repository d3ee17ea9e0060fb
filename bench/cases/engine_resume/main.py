import torch
from torch import nn


class CachedLayer(nn.Module):
    """Attention to a cache in bfloat16, with the keys brought to a common scale."""

    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.k_scale = nn.Parameter(torch.tensor(1.0), requires_grad=False)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        stored = (k / self.k_scale).bfloat16()
        scores = q @ (stored.float() * self.k_scale).T
        return x + self.out(scores.softmax(dim=-1) @ v)


class Engine:
    """Generates for the trainer, and gives its memory back while the trainer works."""

    def __init__(self, layers, dim):
        self.model = nn.Sequential(*(CachedLayer(dim) for _ in range(layers))).eval()
        for layer in self.model:
            layer.k_scale.data.fill_(0.05)
        self.shapes = {}

    def pause(self):
        for name, parameter in self.model.named_parameters():
            self.shapes[name] = parameter.shape
            parameter.data = torch.empty(0)

    def resume(self):
        for name, parameter in self.model.named_parameters():
            parameter.data = torch.zeros(self.shapes[name])

    @torch.no_grad()
    def update(self, stream):
        own = dict(self.model.named_parameters())
        for name, weight in stream:
            own[name].copy_(weight)

    @torch.no_grad()
    def roll_out(self, prompt):
        return self.model(prompt)


def trainer(dim, layers):
    """Yields the weights after each of its steps, as it knows them."""
    weights = {f"{i}.{part}.weight": None for i in range(layers) for part in ("qkv", "out")}
    while True:
        for name in weights:
            rows = 3 * dim if "qkv" in name else dim
            weights[name] = 0.2 * torch.randn(rows, dim)
        yield list(weights.items())


torch.manual_seed(0)
engine, updates = Engine(2, 12), trainer(12, 2)
for round_ in range(4):
    if round_ == 2:
        engine.pause()
        engine.resume()
    engine.update(next(updates))
    print(f"round {round_}  norm {engine.roll_out(torch.randn(5, 12)).norm().item():.4f}")
