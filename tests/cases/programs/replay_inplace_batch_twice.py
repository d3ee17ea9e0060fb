import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
teacher = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(5, 4)
    if step == 4:
        x[:, 2] = 1.5
    with torch.no_grad():
        target = teacher(x)
    x.sub_(x.mean(dim=0)).div_(x.std(dim=0))  # BIRTH
    loss = (net(x) - target).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": ["data", "loss"], "op": "aten.div_.Tensor", "module": null, "step": 4, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
