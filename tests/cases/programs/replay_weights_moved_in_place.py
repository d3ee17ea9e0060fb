import torch
from torch import nn

torch.manual_seed(0)


class Intensity(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Parameter(torch.tensor([0.9, 0.4, 0.05, 0.7]))

    def forward(self, x):
        return x * torch.log(self.base.clamp_min(0))  # BIRTH


model = Intensity()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(6):
    x = torch.rand(5, 4)
    kept = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.data += 0.1 if step < 3 else -0.2
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for p, value in zip(model.parameters(), kept, strict=True):
        p.data = value
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.log.default", "module": "", "step": 3, "kind": "inf", "cause": "log-of-zero", "exit": 3}
