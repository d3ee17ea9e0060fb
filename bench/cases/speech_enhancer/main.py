"""Remove noise from speech by a small filter network, trained on spectral magnitudes."""

import torch
from torch import nn

RATE, FFT = 4000, 128


class Enhancer(nn.Module):
    def __init__(self, width=16, taps=15):
        super().__init__()
        self.analyse = nn.Conv1d(1, width, taps, padding="same", bias=False)
        self.synthesise = nn.Conv1d(width, 1, taps, padding="same", bias=False)

    def forward(self, wave):
        return self.synthesise(torch.tanh(self.analyse(wave[:, None]))).squeeze(1)


def spectrum(wave):
    window = torch.hann_window(FFT)
    return torch.view_as_real(torch.stft(wave, FFT, hop_length=64, window=window, return_complex=True))


def magnitude(parts, power=0.5):
    return parts.pow(2).sum(dim=-1).pow(power)


class Mixer:
    """Tones with noise on top; a batch is as long as its longest utterance."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def utterance(self, seconds):
        time = torch.arange(int(RATE * seconds)) / RATE
        clean = torch.sin(2 * torch.pi * (200 + 400 * torch.rand(1, generator=self.generator)) * time)
        return clean, clean + 0.2 * torch.randn(len(time), generator=self.generator)

    def batch(self, durations):
        clean, noisy = zip(*(self.utterance(seconds) for seconds in durations), strict=True)
        pad = nn.utils.rnn.pad_sequence
        return pad(clean, batch_first=True), pad(noisy, batch_first=True)


torch.manual_seed(1)
mixer = Mixer(1)
model = Enhancer()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
lengths = [(0.5, 0.49), (0.4, 0.39), (0.5, 0.5), (0.45, 0.46), (0.5, 0.2), (0.4, 0.4)]
for step, durations in enumerate(lengths):
    clean, noisy = mixer.batch(durations)
    loss = nn.functional.l1_loss(magnitude(spectrum(model(noisy))), magnitude(spectrum(clean)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: {loss.item():.4f}")
