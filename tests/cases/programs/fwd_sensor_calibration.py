import torch
from torch import nn

STATIONS = {"north": 0, "south": 1, "harbour": 2}


class Calibrated(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("gain", torch.tensor([0.8, 1.2, 1.1, 0.0]))  # the last place is a spare
        self.fc = nn.Linear(5, 1)

    def forward(self, reading, names):
        row = torch.tensor([STATIONS.get(name, -1) for name in names])
        corrected = reading / self.gain[row].unsqueeze(1)  # BIRTH
        return self.fc(corrected)


days = [
    ["north", "south", "harbour"],
    ["south", "south", "north"],
    ["harbour", "north", "airport"],
    ["north", "north", "south"],
]
torch.manual_seed(0)
model = Calibrated()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for day, names in enumerate(days):
    reading = torch.rand(3, 5) + 0.5
    loss = (model(reading, names) - reading.mean(1, keepdim=True)).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(day, round(loss.item(), 4))

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "", "step": 2, "kind": "inf", "samples": [2], "cause": "index-out-of-range", "tempting": ["divide-by-zero"], "exit": 3}
