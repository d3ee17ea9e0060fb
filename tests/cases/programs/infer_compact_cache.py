import torch
from torch import nn


class CachedAttention(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.keys, self.values = [], []

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        self.keys.append(k.to(torch.float16))
        self.values.append(v.to(torch.float16))  # BIRTH
        keys, values = torch.stack(self.keys, 1).float(), torch.stack(self.values, 1).float()
        scores = (keys @ q.unsqueeze(-1)).squeeze(-1) / 30
        return (scores.softmax(-1).unsqueeze(1) @ values).squeeze(1)


torch.manual_seed(0)
attention = CachedAttention().eval()
with torch.no_grad():
    attention.qkv.weight[16:] *= 400
    for position in range(6):
        x = torch.randn(2, 8)
        if position == 3:
            x[1] = 900 * attention.qkv.weight[17].sign()
        y = attention(x)
        print(position, round(y.abs().mean().item(), 2))

# truth:
# {"phase": "forward", "op": "aten._to_copy.default", "module": "", "step": 3, "kind": "inf", "samples": [1], "cause": "half-overflow", "tempting": ["overflow"], "exit": 3}
