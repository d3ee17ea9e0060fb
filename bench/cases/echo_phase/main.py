"""Learn a filter that restores the phase of impulse responses, from their spectra."""

import torch
from torch import nn


class PhaseFilter(nn.Module):
    def __init__(self, taps):
        super().__init__()
        self.taps = nn.Parameter(torch.zeros(taps))
        with torch.no_grad():
            self.taps[0] = 1.0

    def forward(self, wave):
        kernel = self.taps.flip(0)[None, None]
        return nn.functional.conv1d(wave[:, None], kernel, padding="same").squeeze(1)


def frames(wave, size=16):
    return torch.fft.rfft(wave.unfold(-1, size, size))


def phase_loss(estimate, target):
    found = torch.angle(frames(estimate))
    wanted = torch.angle(frames(target))
    return (1 - torch.cos(found - wanted)).mean()


def impulse_response(decay, length=256):
    """Noise that dies away; rooms with carpets do so quickly."""
    time = torch.arange(length)
    return torch.randn(length) * torch.exp(-time / decay)


torch.manual_seed(0)
rooms = [40.0, 60.0, 35.0, 50.0, 45.0, 4.5, 70.0, 55.0]
model = PhaseFilter(9)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step, decay in enumerate(rooms):
    dry = torch.stack([impulse_response(decay) for _ in range(3)])
    wet = dry + 0.3 * dry.roll(2, dims=-1)
    loss = phase_loss(model(wet), dry)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"room {step} (decay {decay}): {loss.item():.4f}")
