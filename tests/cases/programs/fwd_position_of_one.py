import torch
from torch import nn

torch.manual_seed(0)


class RelPos(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.proj = nn.Linear(1, d)

    def forward(self, n):
        pos = torch.arange(n).float().unsqueeze(1) / (n - 1)  # BIRTH
        return self.proj(pos * 2 - 1)


class Enc(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 8)
        self.pos = RelPos(8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.1)
        self.out = nn.Linear(8, 2)

    def forward(self, ids):
        h = self.emb(ids) + self.pos(ids.shape[1])
        return self.out(self.layer(h).mean(1))


net = Enc()
opt = torch.optim.AdamW(net.parameters(), 1e-3)
for it, length in enumerate([5, 3, 7, 4, 2, 1, 6]):
    loss = nn.functional.cross_entropy(net(torch.randint(0, 11, (4, length))), torch.randint(0, 2, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(it, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "pos", "step": 5, "kind": "nan", "cause": "divide-by-zero", "tempting": ["empty-selection"], "exit": 3}
