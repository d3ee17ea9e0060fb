import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)


@torch.no_grad()
def unit_rows(layer):
    layer.weight.div_(layer.weight.norm(dim=1, keepdim=True))  # BIRTH


for step in range(6):
    loss = nn.functional.cross_entropy(net(torch.randn(4, 3)), torch.tensor([0, 1, 0, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 2:
        with torch.no_grad():
            net[0].weight[1].zero_()  # prune a unit
    unit_rows(net[0])
    print(step, loss.item())

# truth:
# {"phase": "weights", "op": "aten.div_.Tensor", "module": [null, "", "0"], "step": [2, 3], "kind": "nan", "cause": "divide-by-zero", "exit": 3}
