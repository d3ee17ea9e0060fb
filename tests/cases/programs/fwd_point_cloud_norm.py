import torch
from torch import nn


class PointNorm(nn.Module):
    def __init__(self, dim, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))

    def forward(self, points):
        if not self.training:
            return (points - self.mean) / (self.var + 1e-4).sqrt()
        mean, biased = points.mean(0), points.var(0, unbiased=False)
        with torch.no_grad():
            self.mean.lerp_(mean, self.momentum)
            self.var.lerp_(points.var(0), self.momentum)  # BIRTH
        return (points - mean) / (biased + 1e-4).sqrt()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 6), PointNorm(6), nn.ReLU(), nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step, n in enumerate([9, 7, 8, 1, 6, 9]):  # points that fell into the sparse grid
    points = torch.randn(n, 3)
    loss = nn.functional.cross_entropy(model(points), (points[:, 0] > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, n, round(loss.item(), 4))
model.eval()
with torch.no_grad():
    print("test", model(torch.randn(8, 3)).softmax(-1)[:, 0].tolist())

# truth:
# {"phase": ["weights", "forward"], "op": "aten.var.correction", "module": "1", "step": [3, 6], "kind": "nan", "cause": "running-stats", "also": ["empty-selection"], "exit": 3}
