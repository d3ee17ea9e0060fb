"""Denoise accessibility tracks of the genome; the loss mixes squared error and correlation."""

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 5, padding=2)

    def forward(self, x):
        return x + torch.relu(self.conv(x))


class Denoiser(nn.Module):
    def __init__(self, width=12, depth=2):
        super().__init__()
        self.stem = nn.Conv1d(1, width, 9, padding=4)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(depth))
        self.head = nn.Conv1d(width, 1, 1)

    def forward(self, track):
        x = self.stem(track[:, None])
        for block in self.blocks:
            x = block(x)
        return torch.nn.functional.softplus(self.head(x)).squeeze(1)


def correlation(found, wanted):
    """Pearson's, window by window."""
    a = found - found.mean(dim=1, keepdim=True)
    b = wanted - wanted.mean(dim=1, keepdim=True)
    return (a * b).sum(dim=1) / (a.norm(dim=1) * b.norm(dim=1))


def windows(count, closed=None):
    """Clean coverage with some peaks, and a thinned out version; closed chromatin has no read at all."""
    place = torch.arange(120)
    peaks = torch.randint(10, 110, (count, 3, 1))
    clean = (4 * torch.exp(-((place - peaks) ** 2) / 30.0)).sum(dim=1).round()
    noisy = torch.poisson(0.4 * clean + 0.05)
    if closed is not None:
        clean[closed] = 0.0
        noisy[closed] = torch.poisson(torch.full((120,), 0.05))
    return noisy, clean


torch.manual_seed(0)
model = Denoiser()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(7):
    noisy, clean = windows(8, closed=6 if step == 4 else None)
    found = model(noisy)
    loss = (found - clean).square().mean() + 0.5 * (1 - correlation(found, clean)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")
