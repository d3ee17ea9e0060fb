import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self, window=4):
        super().__init__()
        self.window = window
        self.embed = nn.Embedding(10, 8)
        self.qkv = nn.Linear(8, 24)
        self.head = nn.Linear(8, 10)
        self.cache = []

    def forward(self, token):
        q, k, v = self.qkv(self.embed(token)).chunk(3, dim=-1)
        self.cache.append((k, v))
        keys = torch.stack([k for k, _ in self.cache], dim=1)
        values = torch.stack([v for _, v in self.cache], dim=1)
        scores = (keys @ q.unsqueeze(-1)).squeeze(-1)
        age = torch.arange(len(self.cache)).flip(0)
        scores = scores.masked_fill(age >= self.window, float("-inf"))
        attention = torch.softmax(scores, dim=-1)  # BIRTH
        return self.head((attention.unsqueeze(1) @ values).squeeze(1))


torch.manual_seed(0)
decoder = Decoder().eval()
token, text = torch.tensor([1, 2]), []
with torch.no_grad():
    for position in range(9):
        if position == 6:
            decoder.window = 0  # a bad configuration arrives
        token = decoder(token).argmax(-1)
        text.append(token.tolist())
print(text)

# truth:
# {"phase": "forward", "op": "aten._softmax.default", "module": "", "step": 6, "kind": "nan", "samples": [0, 1], "cause": "fully-masked-row", "also": ["bad-hyperparameter"], "exit": 3}
