import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


def loss_of_one(weights, x, y):
    out = functional_call(net, weights, (x.unsqueeze(0),))
    return ((out.squeeze() - y) / y).pow(2)  # BIRTH


per_sample = vmap(grad(loss_of_one), in_dims=(None, 0, 0))
for step in range(6):
    x, y = torch.randn(5, 4), torch.rand(5) + 0.5
    if step == 4:
        y[3] = 0.0
    weights = {name: p.detach() for name, p in net.named_parameters()}
    gradients = per_sample(weights, x, y)
    for name, p in net.named_parameters():
        g = gradients[name]
        length = g.flatten(1).norm(dim=1).clamp(min=1.0)
        p.grad = (g / length.view(-1, *[1] * (g.dim() - 1))).mean(dim=0)
    optimizer.step()
    print(step, net[0].weight.sum().item())

# truth:
# {"phase": ["forward", "loss"], "op": "aten.div.Tensor", "module": null, "step": 4, "kind": "inf", "cause": "divide-by-zero", "exit": 3}
