import torch
from torch import nn


class Standardise(nn.Module):
    def forward(self, x_TBC):
        return (x_TBC - x_TBC.mean(-1, keepdim=True)) / x_TBC.std(-1, keepdim=True)  # BIRTH


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.level, self.memory, self.head = Standardise(), nn.GRU(6, 8), nn.Linear(8, 2)

    def forward(self, x_TBC):
        states, _ = self.memory(self.level(x_TBC))
        return self.head(states[-1])


torch.manual_seed(0)
model = Listener()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(5):
    x = torch.rand(9, 4, 6)
    if step == 3:
        x[5:, 2] = 0.5  # the third recording ends early
    loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 1, 0]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "level", "step": 3, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
