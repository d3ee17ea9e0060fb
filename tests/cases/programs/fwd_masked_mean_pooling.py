import torch
import torch.nn as nn


class MeanPool(nn.Module):
    def forward(self, x, mask):
        summed = (x * mask.unsqueeze(-1)).sum(dim=1)
        return summed / mask.sum(dim=1, keepdim=True)  # BIRTH


class SentenceEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(30, 8)
        self.tokens = nn.Embedding(30, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.pool = MeanPool()
        self.cls = nn.Linear(8, 2)

    def forward(self, ids, mask):
        h, _ = self.lstm(self.tokens(ids))
        return self.cls(self.pool(h, mask) + self.embed(ids))


def batches():
    g = torch.Generator().manual_seed(1)
    for i in range(5):
        ids = torch.randint(0, 30, (4, 6), generator=g)
        mask = torch.ones(4, 6)
        mask[:, 4:] = 0
        if i == 3:
            mask[1] = 0
        yield ids, mask, torch.randint(0, 2, (4,), generator=g)


torch.manual_seed(0)
model = SentenceEncoder()
optimizer = torch.optim.Adam(model.parameters())
for ids, mask, y in batches():
    loss = nn.functional.cross_entropy(model(ids, mask), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "pool", "step": 3, "kind": "nan", "samples": [1], "cause": "empty-selection", "tempting": ["divide-by-zero"], "exit": 3}
