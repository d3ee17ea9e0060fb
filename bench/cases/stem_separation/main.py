"""Separate a song into two stems with a scale-invariant distortion loss."""

import torch
from torch import nn

LENGTH = 400


class Separator(nn.Module):
    def __init__(self, stems=2, filters=24):
        super().__init__()
        self.encoder = nn.Conv1d(1, filters, 20, stride=10)
        self.masks = nn.Conv1d(filters, filters * stems, 3, padding=1)
        self.decoder = nn.ConvTranspose1d(filters, 1, 20, stride=10)
        self.stems = stems

    def forward(self, mixture):
        code = torch.relu(self.encoder(mixture[:, None]))
        masks = torch.sigmoid(self.masks(code)).chunk(self.stems, dim=1)
        return torch.stack([self.decoder(code * mask).squeeze(1) for mask in masks], dim=1)


def si_sdr(estimate, target):
    """Scale-invariant signal-to-distortion ratio in decibel."""
    estimate = estimate - estimate.mean(dim=-1, keepdim=True)
    target = target - target.mean(dim=-1, keepdim=True)
    gain = (estimate * target).sum(dim=-1, keepdim=True) / target.square().sum(dim=-1, keepdim=True)
    projection = gain * target
    noise = estimate - projection
    ratio = projection.square().sum(dim=-1) / (noise.square().sum(dim=-1) + 1e-8)
    return 10 * torch.log10(ratio + 1e-8)


def excerpt(generator, singing):
    """Bass and voice of a song; in the bridge nobody sings."""
    time = torch.arange(LENGTH) / 400
    bass = torch.sin(2 * torch.pi * (20 + 10 * torch.rand(1, generator=generator)) * time)
    voice = torch.sin(2 * torch.pi * (90 + 40 * torch.rand(1, generator=generator)) * time)
    return torch.stack([bass, voice * singing])


torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)
model = Separator()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(8):
    stems = torch.stack([excerpt(generator, singing=not (step == 6 and i == 2)) for i in range(4)])
    loss = -si_sdr(model(stems.sum(dim=1)), stems).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    print(f"{step}: {loss.item():.3f} dB")
