import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(3, 6, bias=False), nn.ReLU(), nn.Linear(6, 1, bias=False))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)


def gradient_penalty(x):
    x = x.requires_grad_(True)
    (g,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    length = g.pow(2).sum(dim=1).sqrt()  # BIRTH
    return ((length - 1) ** 2).mean()


for step in range(4):
    x = torch.randn(2, 3)
    if step == 2:
        x[1] = 0  # relu'(0) = 0: the input gradient is exactly zero
    loss = gradient_penalty(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": null, "step": 2, "kind": "inf", "samples": [1], "cause": "singular-gradient", "exit": 3}
