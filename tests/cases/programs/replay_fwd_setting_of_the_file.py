import torch
from torch import nn

SETTINGS = {"floor": 1e-3, "scale": 2.0}
calls = 0


def normalised(x):
    return x / (x.norm(dim=-1, keepdim=True) + SETTINGS["floor"] * (calls % 2))  # BIRTH


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 5, bias=False)

    def forward(self, x):
        return SETTINGS["scale"] * normalised(self.inner(x))


torch.manual_seed(0)
model = nn.Sequential(Encoder(), nn.Linear(5, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    x, y = torch.randn(5, 4), torch.randint(0, 2, (5,))
    if step in (3, 4):
        x[2] = 0  # silence
    calls = step + 1
    out = model(x)
    calls = -1
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "0", "step": 3, "kind": "nan", "samples": [2], "cause": "divide-by-zero", "also": ["bad-hyperparameter"], "tempting": ["transient-fault"], "exit": 3}
