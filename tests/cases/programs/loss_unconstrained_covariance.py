import torch
from torch import nn


class Density(nn.Module):
    def __init__(self, dim=2):
        super().__init__()
        self.mean = nn.Linear(3, dim)
        self.root = nn.Linear(3, dim * dim)
        self.dim = dim

    def forward(self, x):
        noise = self.root(x).view(-1, self.dim, self.dim)
        return self.mean(x), 0.5 * (noise + noise.transpose(1, 2)) + 0.8 * torch.eye(self.dim)


def nll(mean, cov, y):
    d = (y - mean).unsqueeze(-1)
    maha = (d.transpose(1, 2) @ torch.linalg.solve(cov, d)).squeeze()
    return 0.5 * (torch.logdet(cov) + maha).mean()  # BIRTH


torch.manual_seed(0)
model = Density()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(5):
    x = torch.randn(6, 3) * 0.2
    if step == 3:
        direction = model.root.weight[0].detach()
        x[4] = -3 * direction / direction.norm() ** 2  # an outlier: the first variance is below zero
    loss = nll(*model(x), torch.randn(6, 2))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))

# truth:
# {"phase": "loss", "op": ["aten.where.self", "aten.scalar_tensor.default"], "module": null, "step": 3, "kind": "nan", "samples": [4], "cause": "invalid-domain", "tempting": ["log-of-zero"], "exit": 3}
