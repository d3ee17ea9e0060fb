import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Exponential(nn.Module):
    def forward(self, x):
        return torch.exp(x)  # BIRTH


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(3, 6)
        self.body = nn.Sequential(nn.Linear(6, 6), Exponential(), nn.Linear(6, 6))
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        h = self.stem(x)
        h = checkpoint(self.body, h, use_reentrant=True)
        return self.head(h)


stack = Stack()
optimizer = torch.optim.SGD(stack.parameters(), lr=1e-4)
for k in range(5):
    x = torch.randn(2, 3) * (1 if k != 2 else 1e4)
    out = stack(x)
    loss = torch.nn.functional.huber_loss(out, torch.zeros_like(out))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(k, loss.item())

# truth:
# {"phase": "forward", "op": "aten.exp.default", "module": "body.1", "step": 2, "kind": "inf", "cause": "overflow", "also": ["bad-input"], "exit": 3}
