import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR


def mape(prediction, target):
    return ((target - prediction) / target).abs().mean()  # BIRTH


torch.manual_seed(0)
model = nn.GRU(2, 8, batch_first=True)
readout = nn.Linear(8, 1)
forecaster = nn.ModuleDict({"gru": model, "readout": readout})
optimizer = torch.optim.AdamW(forecaster.parameters(), lr=1e-3)
schedule = OneCycleLR(optimizer, max_lr=1e-2, total_steps=10)
sales = torch.rand(10, 4, 1) + 0.5
sales[6, 2] = 0.0  # the shop was closed
for day in range(10):
    hidden, _ = model(torch.randn(4, 5, 2))
    loss = mape(readout(hidden[:, -1]), sales[day])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    print(day, loss.item())

# truth:
# {"phase": "loss", "op": "aten.div.Tensor", "module": null, "step": 6, "kind": "inf", "samples": [2], "cause": "divide-by-zero", "also": ["infeasible-target"], "exit": 3}
