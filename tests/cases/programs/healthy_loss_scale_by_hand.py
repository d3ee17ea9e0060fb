"""Half precision with float32 masters and a loss scale that is found by hand: the first gradients overflow."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1).half()
masters = [p.detach().float().clone().requires_grad_() for p in model.parameters()]
optimizer = torch.optim.SGD(masters, 0.01, momentum=0.9)
scale, overflows = 2.0**22, 0
for step in range(30):
    x = torch.randn(8, 8).half()
    loss = (model(x).float().squeeze() - x.float().sum(1)).square().mean()
    for p in model.parameters():
        p.grad = None
    (loss * scale).backward()
    if not all(bool(torch.isfinite(p.grad).all()) for p in model.parameters()):
        scale, overflows = scale / 2, overflows + 1
        continue
    for p, master in zip(model.parameters(), masters):
        master.grad = p.grad.float() / scale
    optimizer.step()
    with torch.no_grad():
        for p, master in zip(model.parameters(), masters):
            p.copy_(master)
assert 0 < overflows < 20, overflows

# truth:
# {"healthy": true, "exit": 0}
