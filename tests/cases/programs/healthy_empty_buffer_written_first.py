import torch
from torch import nn


class Memory(nn.Module):
    def __init__(self, size=6, dim=4):
        super().__init__()
        self.register_buffer("bank", torch.empty(size, dim))
        self.bank.fill_(float("nan"))  # nobody may read a slot before it is written
        self.filled = 0
        self.key = nn.Linear(dim, dim)

    def forward(self, x):
        k = self.key(x)
        n = min(self.filled + len(x), len(self.bank))
        with torch.no_grad():
            slots = torch.arange(self.filled, self.filled + len(x)) % len(self.bank)
            self.bank[slots] = k.detach()
        self.filled = n
        return k @ self.bank[:n].T


torch.manual_seed(0)
memory = Memory()
optimizer = torch.optim.SGD(memory.parameters(), lr=0.01)
for step in range(5):
    similarity = memory(torch.randn(2, 4))
    loss = similarity.softmax(-1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, tuple(similarity.shape), f"{loss.item():.5f}")

# truth:
# {"healthy": true, "exit": 0}
