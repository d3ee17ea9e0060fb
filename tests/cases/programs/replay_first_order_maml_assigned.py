import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1))
meta = torch.optim.Adam(model.parameters(), lr=1e-2)


def scaled_error(x, y):
    return (model(x) - y).square().mean() / y.std()  # BIRTH


for step in range(6):
    start = [p.detach().clone() for p in model.parameters()]
    meta.zero_grad()
    for task in range(3):
        x = torch.randn(8, 1)
        if (step, task) == (3, 0):
            x = torch.full((8, 1), 0.7)
        y = torch.sin(x)
        for _ in range(2):
            gradients = torch.autograd.grad(scaled_error(x, y), list(model.parameters()))
            with torch.no_grad():
                for p, g in zip(model.parameters(), gradients, strict=True):
                    p.data = p.data - 0.05 * g
        query = (model(x) - y).square().mean()
        gradients = torch.autograd.grad(query, list(model.parameters()))
        with torch.no_grad():
            for p, before, g in zip(model.parameters(), start, gradients, strict=True):
                p.copy_(before)
                p.grad = g if p.grad is None else p.grad + g
    meta.step()
    print(step, query.item())

# truth:
# {"phase": "loss", "op": "aten.div.Tensor", "module": null, "step": 3, "kind": "inf", "cause": "divide-by-zero", "exit": 3}
