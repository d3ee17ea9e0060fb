import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 6)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        t = x.size(1)
        scores = x @ self.lin(x).transpose(1, 2)
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        scores[:, future] = -torch.inf
        return x + self.drop(scores.softmax(-1) @ x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Block(), Block()
        self.out = nn.Linear(6, 1)

    def forward(self, x):
        x = checkpoint(self.first, x, use_reentrant=True)
        x = checkpoint(self.second, x, use_reentrant=False)
        return self.out(x)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(3):
    x = torch.randn(2, 4, 6, requires_grad=True)
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.5f}")

# truth:
# {"healthy": true, "exit": 0}
