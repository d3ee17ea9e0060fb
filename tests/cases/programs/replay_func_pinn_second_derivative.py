import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 16)
        self.outer = nn.Linear(16, 1)

    def forward(self, x):
        radius = x.pow(2).sum().sqrt()  # BIRTH
        return self.outer(torch.tanh(self.inner(x))).squeeze() * radius


field = Field()
optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)
slope = vmap(grad(lambda x, w: functional_call(field, w, (x,))), in_dims=(0, None))
for step in range(5):
    points = torch.rand(6, 2) + 0.1
    if step == 3:
        points[2] = 0.0
    residual = slope(points, dict(field.named_parameters())).sum(dim=1) - 1.0
    loss = residual.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": "", "step": 3, "kind": ["nan", "inf"], "cause": "singular-gradient", "exit": 3}
