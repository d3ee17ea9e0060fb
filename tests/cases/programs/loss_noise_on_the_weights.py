"""Noise is on the weights while the loss is computed, and taken off again before the update."""

import contextlib

import torch
from torch import nn


@contextlib.contextmanager
def noisy(model, strength):
    clean = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=strength)
    yield
    model.load_state_dict(clean)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1), nn.Flatten(0))
with torch.no_grad():
    model[2].weight.fill_(0.3)
    model[2].bias.fill_(0.2)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(6):
    x, waited = torch.randn(8, 4), torch.rand(8) + 0.1
    optimizer.zero_grad()
    with noisy(model, 2.0 if step == 4 else 1e-3):
        mean = model(x)
        loss = (waited / mean + torch.log(mean)).mean()  # BIRTH
        loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.log.default", "module": null, "step": 4, "kind": "nan", "cause": "invalid-domain", "exit": 3}
