import torch
from torch import nn

torch.manual_seed(0)


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(6, 1)
        self.out = nn.Linear(6, 2)

    def forward(self, x, mask):
        score = self.score(x).squeeze(-1) + torch.log(mask)  # 0 -> 0, masked -> -inf
        return self.out((score.softmax(-1).unsqueeze(-1) * x).sum(1))


pool = Pool()
optimizer = torch.optim.RMSprop(pool.parameters(), lr=1e-3)
for step in range(4):
    x = torch.randn(3, 7, 6)
    mask = (torch.arange(7)[None] < torch.tensor([7, 4, 1])[:, None]).float()
    loss = nn.functional.cross_entropy(pool(x, mask), torch.tensor([0, 1, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.5f}")

# truth:
# {"healthy": true, "exit": 0}
