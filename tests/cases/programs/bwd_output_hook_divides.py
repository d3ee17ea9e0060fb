import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)


def per_row(gradient):
    length = gradient.norm(dim=1, keepdim=True)
    return gradient / length  # BIRTH


for step in range(6):
    x = torch.randn(5, 4)
    weight = torch.ones(5)
    if step == 3:
        weight[2] = 0.0  # a row that counts for nothing has no gradient
    scores = net(x)
    scores.register_hook(per_row)
    loss = (scores.square().mean(dim=1) * weight).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": [null, "", "2"], "step": 3, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
