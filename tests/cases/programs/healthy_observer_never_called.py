import os
import tempfile

import torch
from torch import nn

torch.manual_seed(0)


class Observer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("history", torch.full((4,), float("nan")))
        self.register_buffer("lowest", torch.tensor(0.0))


model = nn.Sequential(nn.Linear(5, 7), nn.SiLU(), nn.Linear(7, 1))
everything = nn.ModuleDict({"model": model, "watching": Observer()})
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(8):
    x = torch.randn(6, 5)
    loss = nn.functional.mse_loss(model(x).squeeze(1), x[:, 0])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.5f}")
with tempfile.TemporaryDirectory() as folder:
    torch.save(everything.state_dict(), os.path.join(folder, "all.pt"))
print("saved")

# truth:
# {"healthy": true, "exit": 0}
