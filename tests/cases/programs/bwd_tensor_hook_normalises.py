import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))


def unit_gradient(grad):
    return grad / grad.norm()  # BIRTH


net[0].weight.register_hook(unit_gradient)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(6):
    x = torch.randn(3, 4)
    if step == 4:
        with torch.no_grad():
            net[0].bias.fill_(-100.0)  # every unit dies
    loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": [null, "", "0"], "step": 4, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
