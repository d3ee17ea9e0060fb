"""A program with a guard of its own: gradients that are not finite are thrown away, and the next batch is taken."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
left_out = []
for step in range(20):
    x = torch.randn(8, 4)
    if step % 6 == 5:
        x[0, 0] = float("inf")
    prediction = model(x)
    optimizer.zero_grad(set_to_none=step % 4 == 1)
    prediction.square().mean().backward()
    if all(bool(torch.isfinite(p.grad).all()) for p in model.parameters()):
        optimizer.step()
    else:
        left_out.append(step)
assert left_out == [5, 11, 17], left_out

# truth:
# {"healthy": true, "exit": 0}
