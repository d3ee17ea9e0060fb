import torch
from torch import nn


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8, bias=False)
        self.outer = nn.Linear(8, 1, bias=False)

    def forward(self, x):
        h = self.inner(x)
        return self.outer(h)  # BIRTH


torch.manual_seed(0)
deep = Deep()
with torch.no_grad():
    deep.inner.weight.mul_(0.01)
    deep.outer.weight.fill_(4.0)
deep = deep.half()
optimizer = torch.optim.SGD(deep.parameters(), lr=1e-6)
static_scale = 2.0**15
for step in range(3):
    x = torch.randn(2, 8).half()
    loss = deep(x).sum().float()
    optimizer.zero_grad()
    (loss * static_scale).backward()
    for p in deep.parameters():
        p.grad.div_(static_scale)
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.mm.default", "module": "outer", "step": 0, "kind": "inf", "cause": "half-overflow", "also": ["amp-misuse"], "exit": 3}
