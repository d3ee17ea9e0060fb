"""A square root with a derivative of its own: x ** -0.5 is asked for where x is negative."""

import torch
from torch import nn


class Root(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs().sqrt()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient / 2 * x**-0.5  # BIRTH


class Energy(nn.Module):
    offset = 0.0

    def forward(self, x):
        return Root.apply(x - self.offset)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), Energy(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(6):
    if step == 4:
        net[2].offset = 3.0
    loss = net(torch.randn(5, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {
#   "phase": "backward",
#   "op": "aten.pow.Tensor_Scalar",
#   "module": "2",
#   "step": 4,
#   "kind": "nan",
#   "cause": "invalid-domain",
#   "exit": 3
# }
