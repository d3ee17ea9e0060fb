import torch
from torch import nn


class Observer(nn.Module):
    """Keeps the range of its input, as quantisation does."""

    def __init__(self, dim):
        super().__init__()
        self.register_buffer("low", torch.full((dim,), float("inf")))
        self.register_buffer("high", torch.full((dim,), float("-inf")))

    def forward(self, x):
        with torch.no_grad():
            self.low.copy_(torch.minimum(self.low, x.amin(0)))
            self.high.copy_(torch.maximum(self.high, x.amax(0)))
        return (x - self.low) / (self.high - self.low + 1e-3)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 5), Observer(5), nn.Linear(5, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(6):
    loss = model(torch.randn(4, 3)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}", model[1].low.isfinite().all().item())

# truth:
# {"healthy": true, "exit": 0}
