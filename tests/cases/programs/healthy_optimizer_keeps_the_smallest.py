import torch
from torch import nn


class Cautious(torch.optim.Optimizer):
    """Keeps the smallest gradient of each weight so far; of rows that were never used there is none."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["least"] = torch.full_like(p, float("inf"))
                used = torch.where(p.grad != 0, p.grad.abs(), float("inf"))
                state["least"] = torch.minimum(state["least"], used)
                known = torch.where(state["least"].isfinite(), state["least"].clamp(max=1), 0.0)
                p.add_(p.grad * (1 + known), alpha=-group["lr"])


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(12, 1))
optimizer = Cautious(model.parameters(), lr=1e-2)
for step in range(8):
    loss = model(torch.randint(0, 30, (8, 3))).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")

# truth:
# {"healthy": true, "exit": 0}
