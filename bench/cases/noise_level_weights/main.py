"""Denoises seismic traces: predicts the clean trace, noise levels weighted by signal-to-noise ratio."""

import torch
from torch import nn


class NoiseSchedule(nn.Module):
    def __init__(self, levels=200):
        super().__init__()
        betas = torch.linspace(1e-4, 0.03, levels)
        self.register_buffer("kept", torch.cumprod(1 - betas, dim=0))

    def add(self, clean, noise, level):
        kept = self.kept[level].unsqueeze(1)
        return kept.sqrt() * clean + (1 - kept).sqrt() * noise

    def signal_to_noise(self, level):
        kept = self.kept[level]
        return kept / (1 - kept)


class Denoiser(nn.Module):
    def __init__(self, samples=64, levels=200):
        super().__init__()
        self.schedule = NoiseSchedule(levels)
        self.level = nn.Embedding(levels, 32)
        self.enter = nn.Linear(samples, 32)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, samples))

    def forward(self, noisy, level):
        return self.body(self.enter(noisy) + self.level(level))


def traces(count, samples=64):
    time = torch.linspace(0, 1, samples)
    pitch = 3 + 9 * torch.rand(count, 1)
    return torch.sin(6.283 * pitch * time) * torch.exp(-3 * time)


torch.manual_seed(2)
model = Denoiser().to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(12):
    clean = traces(16).to(torch.bfloat16)
    noise = torch.randn_like(clean)
    level = torch.randint(0, 200, (16,))
    predicted = model(model.schedule.add(clean, noise, level), level)
    error = (predicted - clean).square().mean(dim=1)
    loss = (model.schedule.signal_to_noise(level) * error).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")
