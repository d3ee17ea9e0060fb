import torch
from torch import nn


class Mixer(nn.Module):
    """Padding mask and causal mask, each filled with the dtype's minimum, then added."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def forward(self, x, pad):
        lowest = torch.finfo(x.dtype).min
        h = self.proj(x)
        scores = h @ h.transpose(1, 2)
        causal = torch.ones(x.size(1), x.size(1)).triu(1).to(x.dtype) * lowest
        padding = pad[:, None, :].to(x.dtype) * lowest
        mask = causal + padding  # BIRTH
        weights = (scores + mask).softmax(-1)
        penalty = (weights * mask).sum()  # mass that leaks to masked places
        return weights @ h, penalty


torch.manual_seed(0)
mixer = Mixer().bfloat16()
optimizer = torch.optim.SGD(mixer.parameters(), lr=0.01)
for step in range(3):
    x = torch.randn(2, 3, 4).bfloat16()
    pad = torch.zeros(2, 3, dtype=torch.bool)
    pad[1, 2] = step == 2
    out, penalty = mixer(x, pad)
    loss = out.float().square().mean() - penalty.float() * 1e-6
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.add.Tensor", "module": "", "step": 2, "kind": "inf", "samples": [1], "cause": "mask-overflow", "tempting": ["half-overflow"], "exit": 3}
