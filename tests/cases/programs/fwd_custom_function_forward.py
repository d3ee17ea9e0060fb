import torch
from torch import nn


class SafeReciprocal(torch.autograd.Function):
    """Safe for everything but zero."""

    @staticmethod
    def forward(ctx, x):
        y = torch.reciprocal(x)  # BIRTH
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return -grad * y * y


class Inverse(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(SafeReciprocal.apply(x))


torch.manual_seed(0)
batches = [torch.rand(2, 3) + 0.5 for _ in range(6)]
batches[2][1, 0] = 0
model = Inverse()
sgd = torch.optim.SGD(model.parameters(), lr=1e-2, nesterov=True, momentum=0.9)
for b in batches:
    sgd.zero_grad()
    loss = model(b).abs().sum()
    loss.backward()
    sgd.step()
print([round(p.sum().item(), 3) for p in model.parameters()])

# truth:
# {"phase": "forward", "op": "aten.reciprocal.default", "module": "", "step": 2, "kind": "inf", "samples": [1], "cause": "divide-by-zero", "exit": 3}
