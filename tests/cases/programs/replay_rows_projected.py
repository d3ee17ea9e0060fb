"""The rows of a weight are projected onto the unit sphere, into the weight itself; one of them was pruned."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(6):
    loss = nn.functional.cross_entropy(net(torch.randn(4, 3)), torch.tensor([0, 1, 0, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        weight = net[0].weight
        if step == 2:
            weight[1] = 0
        weight.copy_(weight / weight.norm(dim=1, keepdim=True))  # BIRTH
    print(step, loss.item())

# truth:
# {"phase": "weights", "op": "aten.div.Tensor", "module": [null, "", "0"], "step": [2, 3], "kind": "nan", "cause": "divide-by-zero", "exit": 3}
