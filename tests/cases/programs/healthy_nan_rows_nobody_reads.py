import torch
from torch import nn


class Catalogue(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 2)
        self.register_buffer("seen", torch.full((12, 4), float("nan")))  # filled as they come
        self.count = 0
        with torch.no_grad():
            self.items.weight[9] = float("nan")  # a trap: no batch may hold this item
            self.head.bias[1] = float("-inf")

    def forward(self, items):
        found = self.items(items)
        self.seen[self.count] = found.detach().mean(0)
        self.count += 1
        return self.head(found)


torch.manual_seed(0)
model = Catalogue()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(5):
    items = torch.randint(0, 9, (8,))
    loss = nn.functional.cross_entropy(model(items), torch.zeros(8, dtype=torch.long))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, f"{model.seen[: model.count].norm().item():.4f}")

# truth:
# {"healthy": true, "exit": 0}
