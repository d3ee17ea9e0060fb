import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x, keep):
        q, k, v = (f(x).unsqueeze(1) for f in (self.q, self.k, self.v))
        mask = keep[:, None, None, :].expand(-1, 1, x.size(1), -1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).squeeze(1)


torch.manual_seed(0)
attention = Attention()
optimizer = torch.optim.Adam(attention.parameters(), lr=1e-3)
for step in range(4):
    x = torch.randn(3, 5, 8)
    keep = torch.ones(3, 5, dtype=torch.bool)
    keep[1] = False  # an empty sequence: attention gives zeros for it
    loss = (attention(x, keep) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.5f}")

# truth:
# {"healthy": true, "exit": 0}
