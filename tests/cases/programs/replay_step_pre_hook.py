import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


def unit_gradients(optimizer, args, kwargs):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = p.grad / p.grad.norm()  # BIRTH


optimizer.register_step_pre_hook(unit_gradients)
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
# {"phase": ["backward", "optimizer"], "op": "aten.div.Tensor", "module": null, "step": 4, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
