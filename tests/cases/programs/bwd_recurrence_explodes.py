import torch
from torch import nn


class Reservoir(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(2, 4, bias=False)
        self.rec = nn.Linear(4, 4, bias=False)
        self.out = nn.Linear(4, 1)

    def forward(self, xs):
        h = torch.zeros(xs.size(0), 4)
        for x in xs.unbind(1):
            h = self.rec(h) + self.inp(x)  # BIRTH
        return self.out(h)


torch.manual_seed(0)
model = Reservoir()
nn.init.eye_(model.rec.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    if step == 2:
        with torch.no_grad():
            model.rec.weight.mul_(10)
    xs = torch.zeros(2, 50, 2)
    xs[:, -1] = 1.0  # all but the last input is padding
    loss = model(xs).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.mm.default", "module": "rec", "step": 2, "kind": "inf", "cause": "divergence", "also": ["overflow"], "exit": 3}
