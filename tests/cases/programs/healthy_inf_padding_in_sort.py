import torch
from torch import nn

torch.manual_seed(0)
ranker = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(ranker.parameters(), lr=1e-2)


def smallest(scores, lengths, k):
    padded = torch.full_like(scores, float("inf"))
    inside = torch.arange(scores.size(1))[None] < lengths[:, None]
    padded = torch.where(inside, scores, padded)
    ordered, _ = padded.sort(dim=1)
    return ordered[:, :k]


for step in range(5):
    x = torch.randn(4, 6, 3)
    lengths = torch.tensor([6, 2, 3, 5])
    loss = smallest(ranker(x).squeeze(-1), lengths, 2).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.6f}")

# truth:
# {"healthy": true, "exit": 0}
