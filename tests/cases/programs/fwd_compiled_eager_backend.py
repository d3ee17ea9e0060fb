import torch
from torch import nn


class Ratio(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3)
        self.b = nn.Linear(4, 3)

    def forward(self, x):
        top = self.a(x)
        bottom = torch.relu(self.b(x))
        return top / bottom  # BIRTH


torch.manual_seed(0)
model = Ratio()
with torch.no_grad():
    model.b.bias.fill_(4.0)
model = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(4):
    x = torch.randn(2, 4)
    if step == 2:
        x = x * 100
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": ["", "_orig_mod"], "step": 2, "kind": "inf", "cause": "divide-by-zero", "tempting": ["compiler-fault"], "exit": 3}
