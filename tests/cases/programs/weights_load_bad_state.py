import io

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def damaged_checkpoint():
    state = build().state_dict()
    state["2.weight"][1, 3] = float("nan")
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return buffer


model = build()
state = torch.load(damaged_checkpoint(), weights_only=True)
model.load_state_dict(state)  # BIRTH
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    loss = nn.functional.cross_entropy(model(torch.randn(4, 4)), torch.tensor([0, 1, 0, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "weights", "op": [null, "aten.copy_.default"], "module": [null, "", "2"], "step": [-1, 0], "kind": "nan", "cause": "bad-weights", "tempting": ["corrupted-memory"], "exit": 3}
