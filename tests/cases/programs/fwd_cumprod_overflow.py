import torch
from torch import nn


class Flow(nn.Module):
    def __init__(self, dim=40):
        super().__init__()
        self.scale = nn.Parameter(torch.full((dim,), 2.0))

    def forward(self, x):
        growth = torch.cumprod(self.scale * x, dim=-1)  # BIRTH
        return growth[..., -1]


torch.manual_seed(0)
flow = Flow()
optimizer = torch.optim.SGD(flow.parameters(), lr=1e-30)
for x in [torch.full((2, 40), 0.5), torch.full((2, 40), 0.6), torch.full((2, 40), 9.0)]:
    loss = flow(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())

# truth:
# {"phase": "forward", "op": "aten.cumprod.default", "module": "", "step": 2, "kind": "inf", "samples": [0, 1], "cause": "overflow", "exit": 3}
