"""A Gaussian process whose lengthscale an update has thrown below zero: a power of it is NaN, and so is the
kernel, of which nobody but the factorization that refuses it has hold."""

import torch
from torch import nn


class Kernel(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        scale = self.raw.pow(1.5)  # BIRTH
        return torch.exp(-(torch.cdist(x, x) ** 2) * scale) + 0.1 * torch.eye(len(x))


class Process(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = Kernel()

    def forward(self, x, y):
        factor = torch.linalg.cholesky(self.kernel(x))
        solved = torch.cholesky_solve(y[:, None], factor)
        return (y * solved[:, 0]).sum() + 2 * factor.diagonal().log().sum()


torch.manual_seed(0)
process = Process()
optimizer = torch.optim.SGD(process.parameters(), lr=0.05)
x, y = torch.randn(6, 1), torch.randn(6)
for step in range(4):
    loss = process(x, y)
    optimizer.zero_grad()
    loss.backward()
    if step == 1:
        process.kernel.raw.grad.fill_(20.0)
    optimizer.step()

# truth:
# {
#   "phase": "forward",
#   "op": "aten.pow.Tensor_Scalar",
#   "module": "kernel",
#   "step": 2,
#   "kind": "nan",
#   "cause": "invalid-domain",
#   "exit": 3
# }
