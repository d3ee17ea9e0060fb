import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        scores = q @ k.transpose(-2, -1)  # BIRTH
        return torch.softmax(scores / math.sqrt(x.shape[-1]), dim=-1) @ v


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 256)
        self.layers = nn.ModuleList(Attention(256) for _ in range(3))
        self.out = nn.Linear(256, 100)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.out(x)


torch.manual_seed(0)
model = Translator().cuda()
with torch.no_grad():
    for name in ("q", "k"):
        getattr(model.layers[1], name).weight.mul_(90)  # from a checkpoint that was trained in bfloat16
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cuda")
for step in range(3):
    ids = torch.randint(0, 100, (4, 32), device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        logits = model(ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": ["aten.bmm.default"], "module": "layers.1", "step": 0, "kind": "inf", "cause": "half-overflow", "tempting": ["overflow", "amp-misuse", "bad-weights"], "needs": "cuda", "exit": 3}
