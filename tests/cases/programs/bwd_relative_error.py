import torch
from torch import nn

torch.manual_seed(0)
forecaster = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(forecaster.parameters(), lr=1e-3)


def error(predicted, actual):
    relative = (predicted - actual) / actual  # BIRTH
    return torch.where(actual != 0, relative, predicted).abs().mean()


for week in range(6):
    history = torch.rand(5, 4)
    actual = history.mean(dim=1, keepdim=True)
    if week == 4:
        actual[2] = 0.0
    loss = error(forecaster(history), actual)
    print(week, round(loss.item(), 4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": ["loss", "backward"], "op": "aten.div.Tensor", "module": null, "step": 4, "kind": ["inf", "nan"], "samples": [2], "cause": "where-gradient", "tempting": ["divide-by-zero", "singular-gradient"], "exit": 3}
