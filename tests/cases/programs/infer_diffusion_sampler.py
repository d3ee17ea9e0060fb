import math

import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, 4))

    def forward(self, x, t):
        time = torch.full((x.size(0), 1), float(t))
        return self.net(torch.cat([x, time], dim=1))


@torch.no_grad()
def sample(model, steps):
    alpha_bar = torch.cos(torch.linspace(0, 1, steps + 1) * math.pi / 2) ** 2
    alpha_bar[:4] = torch.tensor([1.0, 0.9999, 0.9997, 1.0002])  # patched by hand
    x = torch.randn(3, 4)
    for t in range(steps, 0, -1):
        eps = model(x, t / steps)
        a, previous = alpha_bar[t].clamp(min=1e-3), alpha_bar[t - 1]
        x0 = (x - (1 - a).sqrt() * eps) / a.sqrt()
        sigma = torch.sqrt(1 - previous)  # BIRTH
        x = previous.sqrt() * x0 + sigma * eps
    return x


torch.manual_seed(0)
model = Denoiser().eval()
print(sample(model, 8).mean().item())

# truth:
# {"phase": ["forward", "loss"], "op": "aten.sqrt.default", "module": null, "step": [4, 5], "kind": "nan", "cause": "invalid-domain", "also": ["bad-hyperparameter"], "exit": 3}
