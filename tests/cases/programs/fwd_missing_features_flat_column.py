import torch
from torch import nn


class Scaled(nn.Module):
    """Columns scaled to 0 .. 1; what is missing gets a learned value."""

    def __init__(self, columns):
        super().__init__()
        self.instead = nn.Parameter(torch.zeros(columns))

    def forward(self, table):
        missing = torch.isnan(table)
        low = table.masked_fill(missing, 1e4).amin(dim=0)
        high = table.masked_fill(missing, -1e4).amax(dim=0)
        scaled = (table - low) / (high - low)  # BIRTH
        return torch.where(missing, self.instead, scaled)


torch.manual_seed(5)
model = nn.Sequential(Scaled(4), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    table = torch.randn(10, 4)
    table[torch.rand(10, 4) < 0.2] = float("nan")
    table[0], table[1, 2] = torch.randn(4), float("nan")
    if step == 7:  # a sensor that hangs
        table[:, 2] = torch.where(torch.isnan(table[:, 2]), table[:, 2], torch.tensor(1.5))
    loss = model(table).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "0", "step": 7, "kind": "nan", "cause": "divide-by-zero", "tempting": ["bad-input"], "exit": 3}
