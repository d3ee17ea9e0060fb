import torch
from torch import nn


class InvertibleConv(nn.Module):
    """A 1x1 convolution over channels, as in Glow."""

    def __init__(self, channels):
        super().__init__()
        base = torch.eye(channels)
        base[1] = base[0]  # grey pictures: two channels are the same
        self.weight = nn.Parameter(base)

    def forward(self, x):
        height, width = x.shape[2:]
        logdet = height * width * torch.slogdet(self.weight)[1]  # BIRTH
        return torch.einsum("ij,bjhw->bihw", self.weight, x), logdet


torch.manual_seed(0)
conv = InvertibleConv(3)
optimizer = torch.optim.RMSprop(conv.parameters(), lr=1e-3)
for batch in range(3):
    z, logdet = conv(torch.randn(2, 3, 4, 4))
    loss = 0.5 * (z**2).sum(dim=(1, 2, 3)).mean() - logdet
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(batch, loss.item())

# truth:
# {"phase": "forward", "op": "aten._linalg_slogdet.default", "module": "", "step": 0, "kind": "inf", "cause": "log-of-zero", "tempting": ["bad-weights", "overflow"], "exit": 3}
