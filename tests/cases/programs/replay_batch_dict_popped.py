import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.out = nn.Linear(8, 1)

    def forward(self, batch):
        mask = batch.pop("mask", None)
        h = self.embed(batch["tokens"])
        if mask is None:
            return self.out(h.mean(dim=1))
        mask = mask.unsqueeze(-1)
        pooled = (h * mask).sum(dim=1) / mask.sum(dim=1)  # BIRTH
        return self.out(pooled)


torch.manual_seed(0)
net = Tagger()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(6):
    batch = {"tokens": torch.randint(10, (4, 5)), "mask": torch.ones(4, 5)}
    if step == 4:
        batch["mask"][2] = 0
    loss = net(batch).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "", "step": 4, "kind": "nan", "samples": [2], "cause": "empty-selection", "also": ["divide-by-zero"], "exit": 3}
