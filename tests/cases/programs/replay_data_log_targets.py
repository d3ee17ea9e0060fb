import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(7):
    x, sales = torch.randn(8, 6), torch.rand(8) + 0.01
    if step == 5:
        sales[3] = 0  # a shop that was closed
    target = sales.log()  # BIRTH
    loss = nn.functional.mse_loss(net(x)[:, 0], target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "data", "op": "aten.log.default", "module": null, "step": 5, "kind": "inf", "samples": [3], "cause": "log-of-zero", "also": ["bad-input"], "exit": 3}
