import torch
from torch import nn


def spread_out(points):
    """Pushes every point away from its nearest neighbour; no point is its own neighbour."""
    distance = (points[:, None] - points[None]).abs().sum(dim=-1)
    distance = distance.masked_fill(torch.eye(len(points), dtype=torch.bool), float("inf"))
    logged = torch.log(distance)  # BIRTH
    return -logged.min(dim=1).values.mean()


torch.manual_seed(7)
encoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
for step in range(9):
    images = torch.randn(7, 6)
    if step == 6:
        images[4] = images[2]  # the same picture twice
    codes = encoder(images)
    loss = codes.pow(2).mean() + 0.1 * spread_out(codes)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": "loss", "op": "aten.log.default", "module": null, "step": 6, "kind": "inf", "samples": [2, 4], "cause": "log-of-zero", "tempting": ["inf-arithmetic"], "exit": 3}
