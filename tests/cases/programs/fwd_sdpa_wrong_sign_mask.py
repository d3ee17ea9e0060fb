import torch
import torch.nn.functional as F
from torch import nn


class CausalAttention(nn.Module):
    def __init__(self, dim=16, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        bias = torch.zeros(t, t)
        bias = bias.masked_fill(torch.ones(t, t).triu(1).bool(), float("inf"))  # should be -inf
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)  # BIRTH
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(20, 16)
        self.h = nn.Sequential(*[CausalAttention() for _ in range(2)])
        self.lm_head = nn.Linear(16, 20)

    def forward(self, ids):
        return self.lm_head(self.h(self.wte(ids)))


torch.manual_seed(0)
gpt = GPT()
optimizer = torch.optim.AdamW(gpt.parameters(), lr=3e-4)
for step in range(2):
    ids = torch.randint(0, 20, (2, 9))
    logits = gpt(ids[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, 20), ids[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten._scaled_dot_product_flash_attention_for_cpu.default", "module": "h.0", "step": 0, "kind": "nan", "samples": [0, 1], "cause": "inf-arithmetic", "tempting": ["fully-masked-row"], "exit": 3}
