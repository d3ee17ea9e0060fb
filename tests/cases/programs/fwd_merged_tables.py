import torch
from torch import nn


class MergedEmbedding(nn.Module):
    """All categorical tables in one, each feature with its own offset."""

    def __init__(self, sizes):
        super().__init__()
        offsets = torch.tensor([0, *sizes]).cumsum(0)[:-1]
        self.register_buffer("offsets", offsets)
        self.table = nn.Embedding(sum(sizes), 1)

    def forward(self, ids):
        return self.table(ids + self.offsets).squeeze(-1)


class ClickModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = MergedEmbedding([6, 4, 10])
        with torch.no_grad():
            self.embed.table.weight[:10].mul_(0.1)  # log-rates
            self.embed.table.weight[10:].uniform_(90, 400)  # prices

    def forward(self, ids):
        country, device, product = self.embed(ids).unbind(dim=1)
        rate = torch.exp(country) * torch.exp(device)  # BIRTH
        return rate * product / 400


torch.manual_seed(0)
model = ClickModel()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(6):
    ids = torch.stack([torch.randint(0, n, (4,)) for n in (6, 4, 10)], dim=1)
    if step == 4:
        ids[1, 1] = 4  # a new kind of device
    loss = (model(ids) - 0.5).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.exp.default", "module": "", "step": 4, "kind": "inf", "samples": [1], "cause": "index-out-of-range", "also": ["overflow"], "exit": 3}
