import torch
from torch import nn


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 8))

    def forward(self, x):
        return self.body(x)


@torch.compile
def poisson(log_rate, count):
    rate = torch.exp(log_rate)  # BIRTH
    return (rate - count * log_rate).mean()


torch.manual_seed(0)
model = torch.compile(Counts().cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(9):
    x = torch.randn(32, 64, device="cuda")
    if step == 6:
        x[3] *= 1e5
    count = torch.randint(0, 4, (32, 8), device="cuda")
    loss = poisson(model(x), count)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.exp.default", "module": null, "step": 6, "kind": "inf", "cause": "overflow", "also": [], "tempting": ["compiler-fault", "bad-input"], "needs": "cuda", "exit": 3}
