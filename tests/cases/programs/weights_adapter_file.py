import io

import torch
from torch import nn


class Adapter(nn.Module):
    def __init__(self, dim, rank=2):
        super().__init__()
        self.down = nn.Linear(dim, rank, bias=False)
        self.up = nn.Linear(rank, dim, bias=False)

    def forward(self, x):
        return self.up(self.down(x))


class Tuned(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.base = nn.Linear(dim, dim)
        self.adapter = Adapter(dim)

    def forward(self, x):
        return self.base(x) + 0.5 * self.adapter(x)


def from_the_hub():
    torch.manual_seed(5)
    trained = Adapter(6)
    trained.up.weight.data[3] = torch.tensor([float("inf"), 0.2])
    file = io.BytesIO()
    torch.save(trained.state_dict(), file)
    file.seek(0)
    return file


torch.manual_seed(0)
model = Tuned()
model.adapter.load_state_dict(torch.load(from_the_hub(), weights_only=True))  # BIRTH
model.requires_grad_(False)
model.base.requires_grad_(True)
optimizer = torch.optim.SGD(model.base.parameters(), lr=0.01)
for step in range(3):
    x = torch.randn(4, 6)
    loss = nn.functional.l1_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "weights", "op": [null, "aten.copy_.default"], "module": [null, "", "adapter", "adapter.up"], "step": [-1, 0], "kind": "inf", "cause": "bad-weights", "tempting": ["uninitialised-memory", "corrupted-memory"], "exit": 3}
