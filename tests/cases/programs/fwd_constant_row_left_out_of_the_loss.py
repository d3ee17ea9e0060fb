import torch
from torch import nn

torch.manual_seed(0)


class Standardise(nn.Module):
    def forward(self, x):
        return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)  # BIRTH


net = nn.Sequential(nn.Linear(4, 8, bias=False), Standardise(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(6, 4)
    valid = torch.ones(6, dtype=torch.bool)
    if step == 3:
        x[5], valid[5] = 0.0, False
    loss = (net(x)[:, 0] - x.sum(1))[valid].pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "1", "step": 3, "kind": "nan", "samples": [5], "cause": "divide-by-zero", "exit": 3}
