import numpy as np
import torch
from torch import nn


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.GRU(3, 8, batch_first=True)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        states, _ = self.memory(x)  # its gates bound whatever comes in: the loss stays finite
        return self.head(states[:, -1])


readings = np.random.default_rng(0).normal(size=(24, 7, 3)).astype("float32")
readings[13, 4, 1] = np.inf
torch.manual_seed(0)
data = torch.from_numpy(readings)  # BIRTH
model = Forecast()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(6):
    loss = (model(data[4 * step : 4 * step + 4]) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "data", "op": null, "module": null, "step": 3, "kind": "inf", "samples": [1], "cause": "bad-input", "tempting": ["singular-gradient", "inf-arithmetic"], "exit": 3}
