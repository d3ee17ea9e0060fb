import torch
from torch import nn


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.wi = nn.Linear(dim, dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        return self.wo(torch.relu(self.wi(x)))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ff = FeedForward(dim)

    def forward(self, x):
        return x + self.ff(x)  # BIRTH


class Encoder(nn.Module):
    def __init__(self, dim=4, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
encoder = Encoder()
for block in encoder.blocks:
    nn.init.eye_(block.ff.wi.weight)
    nn.init.eye_(block.ff.wo.weight)
encoder = encoder.half()
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.0)
for step in range(3):
    x = torch.full((2, 4), 1.0 if step < 2 else 20000.0, dtype=torch.float16)
    out = encoder(x).float()
    loss = out.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.add.Tensor", "module": "blocks.1", "step": 2, "kind": "inf", "samples": [0, 1], "cause": "half-overflow", "exit": 3}
