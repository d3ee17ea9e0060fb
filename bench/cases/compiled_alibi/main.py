import torch
from torch import nn


class AlibiAttention(nn.Module):
    """Attention with a penalty on distance and a causal mask, both added to the scores."""

    def __init__(self, dim=16, heads=4, longest=32):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        distance = torch.arange(longest)[None, :] - torch.arange(longest)[:, None]
        slopes = 2.0 ** -torch.arange(1, heads + 1).view(heads, 1, 1)
        bias = torch.where(distance <= 0, slopes * distance, float("-inf"))
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, x):
        length = x.size(1)
        q, k, v = self.qkv(x).view(len(x), length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5 + self.bias[:, :length, :length]
        return self.out((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.attention = AlibiAttention()
        self.head = nn.Linear(16, 20)

    def forward(self, ids):
        x = self.embed(ids)
        return self.head(x + self.attention(x))


torch.manual_seed(0)
model = Model()
compiled = torch.compile(model, backend="aot_eager", dynamic=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(6):
    ids = torch.randint(0, 20, (4, 8 + 2 * (step % 3)))
    logits = compiled(ids[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}  loss {loss.item():.4f}")
