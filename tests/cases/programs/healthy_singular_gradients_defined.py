import torch
from torch import nn


class Geometry(nn.Module):
    """norm, std, cdist, atan2 and angle at the origin: torch defines their gradients as finite."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2, bias=False)

    def forward(self, x):
        y = self.fc(x)
        length = y.norm(dim=1)
        spread = y.std(dim=1)
        pairs = torch.cdist(y, y).sum(1)
        heading = torch.atan2(y[:, 0], y[:, 1])
        phase = torch.angle(torch.view_as_complex(y))
        root = torch.linalg.vector_norm(y, ord=0.5, dim=1)
        return length + spread + pairs + heading + phase + root


torch.manual_seed(0)
model = Geometry()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(4):
    x = torch.randn(4, 2)
    x[0] = x[1] = 0.0
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.5f}")

# truth:
# {"healthy": true, "exit": 0}
