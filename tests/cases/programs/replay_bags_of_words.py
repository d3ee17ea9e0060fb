import torch
from torch import nn

torch.manual_seed(0)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.history = nn.EmbeddingBag(50, 8, mode="mean", sparse=True)
        self.items = nn.Embedding(50, 8, sparse=True)

    def forward(self, flat, offsets, item):
        user = self.history(flat, offsets)
        user = user / user.norm(dim=1, keepdim=True)  # BIRTH
        item = self.items(item)
        return (user * item / item.norm(dim=1, keepdim=True)).sum(1)


net = TwoTower()
opt = torch.optim.SparseAdam(list(net.parameters()), 1e-2)
for it in range(7):
    lengths = torch.tensor([3, 2, 4, 1])
    if it == 4:
        lengths[2] = 0  # a new user
    flat = torch.randint(0, 50, (int(lengths.sum()),))
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
    score = net(flat, offsets, torch.randint(0, 50, (4,)))
    loss = nn.functional.binary_cross_entropy_with_logits(score, torch.randint(0, 2, (4,)).float())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(it, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "", "step": 4, "kind": "nan", "samples": [2], "cause": "divide-by-zero", "exit": 3}
