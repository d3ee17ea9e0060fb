import torch
from torch import nn


class StraightNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        n = x.norm(dim=1, keepdim=True)
        ctx.save_for_backward(x, n)
        return n

    @staticmethod
    def backward(ctx, grad):
        x, n = ctx.saved_tensors
        direction = x / n  # BIRTH
        return grad * direction


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4, bias=False)
        self.b = nn.Linear(1, 1)

    def forward(self, x):
        return self.b(StraightNorm.apply(self.a(x)))


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(3, 4)
for step in range(4):
    if step == 2:
        x[0] = 0
    loss = net(x).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(net.a.weight.sum().item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": "", "step": 2, "kind": "nan", "samples": [0], "cause": "divide-by-zero", "also": ["singular-gradient"], "exit": 3}
