import io

import torch
from torch import nn


def export():
    g = torch.Generator().manual_seed(4)
    table = {"x": torch.randn(12, 3, generator=g), "y": torch.randn(12, 1, generator=g)}
    table["x"][7, 0] = float("inf")  # overflowed when it was exported
    file = io.BytesIO()
    torch.save(table, file)
    file.seek(0)
    return file


file = export()
data = torch.load(file)  # BIRTH
torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for x, y in zip(data["x"].split(4), data["y"].split(4)):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())

# truth:
# {"phase": "data", "op": null, "module": null, "step": [-1, 1], "kind": "inf", "cause": "bad-input", "exit": 3}
