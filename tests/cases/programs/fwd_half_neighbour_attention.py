import torch
from torch import nn


class GraphAttention(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.left, self.right = nn.Linear(dim, 1), nn.Linear(dim, 1)

    def forward(self, x, adjacency):
        h = self.fc(x)
        e = nn.functional.leaky_relu(self.left(h) + self.right(h).T, 0.2)
        e = e.masked_fill(~adjacency, -torch.inf)
        return torch.softmax(e, dim=1) @ h  # BIRTH


torch.manual_seed(0)
layer = GraphAttention().half()
optimizer = torch.optim.SGD(layer.parameters(), lr=1e-2)
for step in range(4):
    x = torch.randn(7, 6).half()
    adjacency = torch.rand(7, 7) > 0.6
    adjacency |= torch.eye(7, dtype=torch.bool)
    if step == 3:
        adjacency[5] = False  # removed by edge dropout
    loss = layer(x, adjacency).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten._softmax.default", "module": "", "step": 3, "kind": "nan", "samples": [5], "cause": "fully-masked-row", "tempting": ["mask-overflow", "half-overflow"], "exit": 3}
