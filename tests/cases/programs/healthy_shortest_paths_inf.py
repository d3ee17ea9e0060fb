import torch
from torch import nn


def shortest_paths(edges, n):
    d = torch.full((n, n), float("inf"))
    d.fill_diagonal_(0.0)
    for a, b, w in edges:
        d[a, b] = d[b, a] = w
    for k in range(n):
        d = torch.minimum(d, d[:, k : k + 1] + d[k : k + 1, :])
    return d


torch.manual_seed(0)
edges = [(0, 1, 1.0), (1, 2, 2.0), (2, 3, 0.5), (4, 5, 1.0)]
distance = shortest_paths(edges, 6)  # two components: some pairs stay infinite
pairs = distance.isfinite().nonzero()
target = distance[pairs[:, 0], pairs[:, 1]]
embedding = nn.Embedding(6, 3)
optimizer = torch.optim.Adam(embedding.parameters(), lr=0.05)
for epoch in range(5):
    a, b = embedding(pairs[:, 0]), embedding(pairs[:, 1])
    loss = ((a - b).norm(dim=1) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, f"{loss.item():.4f}")

# truth:
# {"healthy": true, "exit": 0}
