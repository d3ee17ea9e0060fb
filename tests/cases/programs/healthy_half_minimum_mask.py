import torch
from torch import nn


class HalfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 24)

    def forward(self, x, pad):
        q, k, v = self.proj(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) * 8**-0.5
        scores = scores.masked_fill(pad[:, None, :], torch.finfo(scores.dtype).min)
        return scores.softmax(-1) @ v


torch.manual_seed(0)
attention = HalfAttention().half().eval()
with torch.no_grad():
    for request in range(3):
        x = torch.randn(2, 5, 8).half()
        pad = torch.zeros(2, 5, dtype=torch.bool)
        pad[0, 2:] = True
        pad[1] = request == 2  # everything masked: uniform weights, still finite
        y = attention(x, pad)
        print(request, tuple(y.shape), bool(y.isfinite().all()))

# truth:
# {"healthy": true, "exit": 0}
