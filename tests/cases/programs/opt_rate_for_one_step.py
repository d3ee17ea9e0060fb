import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, foreach=False)
for step in range(8):
    loss = (model(torch.randn(5, 4)) - 3e3).square().mean()
    optimizer.zero_grad()
    loss.backward()
    if step == 3:
        optimizer.param_groups[0]["lr"] = 1e37  # a kick out of a plateau
    optimizer.step()  # BIRTH
    optimizer.param_groups[0]["lr"] = 1e-6
    print(step, loss.item())

# truth:
# {"phase": "optimizer", "op": "aten.add_.Tensor", "module": null, "step": 3, "kind": "inf", "cause": "bad-hyperparameter", "also": ["overflow"], "exit": 3}
