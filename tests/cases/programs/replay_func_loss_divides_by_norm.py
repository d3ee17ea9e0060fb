"""Gradients per sample, clipped and averaged: the loss of one sample is divided by the size of an empty one,
and only its gradient leaves the transform."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)


def loss_of_one(weights, x, y):
    out = functional_call(net, weights, (x[None],))[0, 0]
    return (out - y).pow(2) / x.norm()  # BIRTH


for step in range(5):
    x, y = torch.randn(6, 3), torch.randn(6)
    if step == 3:
        x[2] = 0.0
    weights = {name: p.detach() for name, p in net.named_parameters()}
    gradients = vmap(grad(loss_of_one), in_dims=(None, 0, 0))(weights, x, y)
    optimizer.zero_grad()
    for name, p in net.named_parameters():
        flat = gradients[name].flatten(1)
        scale = (1 / (flat.norm(dim=1) + 1e-6)).clamp(max=1)
        p.grad = (flat * scale[:, None]).mean(0).view_as(p)
    optimizer.step()

# truth:
# {
#   "phase": "loss",
#   "op": "aten.div.Tensor",
#   "module": null,
#   "step": 3,
#   "kind": "inf",
#   "cause": "divide-by-zero",
#   "tempting": ["where-gradient"],
#   "exit": 3
# }
