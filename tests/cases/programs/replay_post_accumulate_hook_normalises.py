import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


def unit_gradient(parameter):
    parameter.grad.div_(parameter.grad.norm())  # BIRTH


for parameter in net.parameters():
    parameter.register_post_accumulate_grad_hook(unit_gradient)
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
# {"phase": "backward", "op": "aten.div_.Tensor", "module": [null, "", "0", "2"], "step": 4, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
