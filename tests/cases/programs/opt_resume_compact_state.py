import torch
from torch import nn


def compact(tensor):
    """A checkpoint of an eighth of the size: 8 bits and a scale per tensor."""
    scale = tensor.abs().max().clamp(min=1e-12) / 127
    return (tensor / scale).round().to(torch.int8), scale


def expand(packed):
    values, scale = packed
    return (values.float() - 2) * scale


def train(model, optimizer, steps):
    for _ in range(steps):
        x = torch.randn(8, 4)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # BIRTH
        print(round(loss.item(), 4))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
train(model, optimizer, 3)
saved = optimizer.state_dict()
packed = {i: (compact(s["exp_avg"]), compact(s["exp_avg_sq"])) for i, s in saved["state"].items()}
for i, s in saved["state"].items():
    s["exp_avg"], s["exp_avg_sq"] = (expand(p) for p in packed[i])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
optimizer.load_state_dict(saved)
train(model, optimizer, 2)

# truth:
# {"phase": "optimizer", "op": "aten.sqrt.default", "module": null, "step": 3, "kind": "nan", "cause": "optimizer-state", "tempting": ["bad-hyperparameter", "invalid-domain"], "exit": 3}
