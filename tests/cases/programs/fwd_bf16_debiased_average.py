import torch
from torch import nn


class DebiasedNorm(nn.Module):
    """Divides by a running mean of the size of the activations, corrected for its start at zero."""

    def __init__(self, decay=0.999):
        super().__init__()
        self.register_buffer("decay", torch.tensor(decay))
        self.register_buffer("average", torch.tensor(0.0))
        self.register_buffer("count", torch.tensor(0.0))

    def forward(self, x):
        with torch.no_grad():
            self.count += 1
            self.average.mul_(self.decay).add_((1 - self.decay) * x.abs().mean())
        size = self.average / (1 - self.decay**self.count)  # BIRTH
        return x / size


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), DebiasedNorm(), nn.Linear(8, 1)).to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(3):
    loss = model(torch.randn(4, 8, dtype=torch.bfloat16)).float().pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "1", "step": 0, "kind": "nan", "cause": "half-underflow", "tempting": ["divide-by-zero", "running-stats", "empty-selection"], "exit": 3}
