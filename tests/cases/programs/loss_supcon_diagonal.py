import torch
from torch import nn
from torch.nn import functional as F


class SupervisedContrast(nn.Module):
    def __init__(self, temperature=0.1):
        super().__init__()
        self.temperature = temperature

    def forward(self, z, labels):
        sim = z @ z.T / self.temperature
        itself = torch.eye(len(z), dtype=torch.bool)
        sim = sim.masked_fill(itself, float("-inf"))
        log_prob = sim - torch.logsumexp(sim, dim=1, keepdim=True)
        positive = ((labels[:, None] == labels[None, :]) & ~itself).float()
        return -((positive * log_prob).sum(1) / positive.sum(1)).mean()  # BIRTH


torch.manual_seed(0)
projector = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 8))
contrast = SupervisedContrast()
optimizer = torch.optim.SGD(projector.parameters(), lr=0.1)
for step in range(3):
    labels = torch.arange(8) // 2
    loss = contrast(F.normalize(projector(torch.randn(8, 12)), dim=1), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.mul.Tensor", "module": "", "step": 0, "kind": "nan", "cause": "inf-arithmetic", "tempting": ["empty-selection", "divide-by-zero"], "exit": 3}
