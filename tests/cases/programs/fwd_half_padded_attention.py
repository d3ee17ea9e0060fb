import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, x, padding):
        bias = torch.where(padding, -1e9, 0.0).to(x.dtype)  # BIRTH
        scores = self.q(x) @ self.k(x).transpose(1, 2) * 0.35
        return (scores + bias[:, None, :]).softmax(dim=-1) @ self.v(x)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.attention = Attention()
        self.tag = nn.Linear(8, 3)

    def forward(self, ids):
        return self.tag(self.attention(self.embed(ids), ids == 0))


torch.manual_seed(0)
tagger = Tagger().half()
optimizer = torch.optim.SGD(tagger.parameters(), lr=0.01)
for step in range(4):
    ids = torch.randint(1, 11, (3, 5))
    ids[0, 3:] = 0
    if step == 2:
        ids[1] = 0  # fills the batch up to three
    logits = tagger(ids).float()
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten() % 3)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten._to_copy.default", "module": "attention", "step": 2, "kind": "inf", "cause": "mask-overflow", "tempting": ["fully-masked-row", "half-overflow"], "exit": 3}
