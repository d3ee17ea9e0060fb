import torch
from torch import nn


class GCNLayer(nn.Module):
    def __init__(self, inp, out):
        super().__init__()
        self.lin = nn.Linear(inp, out)

    def forward(self, x, adj):
        degree = adj.sum(dim=1)
        scale = degree.pow(-0.5)  # BIRTH
        norm = scale[:, None] * adj * scale[None, :]
        return norm @ self.lin(x)


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([GCNLayer(4, 8), GCNLayer(8, 2)])

    def forward(self, x, adj):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x, adj))
        return self.layers[-1](x, adj)


torch.manual_seed(0)
adjacency = (torch.rand(7, 7) > 0.3).float()
adjacency = ((adjacency + adjacency.T) > 0).float()
adjacency[6, :] = adjacency[:, 6] = 0  # nobody knows node 6
features, labels = torch.randn(7, 4), torch.randint(0, 2, (7,))
gcn = GCN()
optimizer = torch.optim.Adam(gcn.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(gcn(features, adjacency), labels)
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())

# truth:
# {"phase": "forward", "op": "aten.pow.Tensor_Scalar", "module": "layers.0", "step": 0, "kind": "inf", "samples": [6], "cause": "divide-by-zero", "exit": 3}
