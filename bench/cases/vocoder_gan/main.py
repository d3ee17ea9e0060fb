"""A small vocoder: the generator turns spectra into sound, the discriminator tells it from recordings."""

import torch
from torch import nn
from torch.nn import functional as F

FRAMES, BINS, HOP = 16, 20, 32


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(BINS, 48)
        self.out = nn.Linear(48, HOP)

    def forward(self, spectrum):
        return torch.tanh(self.out(F.leaky_relu(self.pre(spectrum), 0.1)))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(HOP, 32)
        self.score = nn.Linear(32, 1)

    def forward(self, sound):
        return self.score(F.leaky_relu(self.body(sound), 0.1))


class Training:
    def __init__(self):
        torch.manual_seed(0)
        self.net_g, self.net_d = Generator(), Discriminator()
        self.basis = torch.randn(BINS, HOP) / 6
        self.optim_g = torch.optim.AdamW(self.net_g.parameters(), lr=1e-3)
        self.optim_d = torch.optim.AdamW(self.net_d.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler("cpu")

    def update(self, optimizer, loss):
        optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(optimizer)
        optimizer.step()

    def step(self, spectrum):
        sound = torch.tanh(spectrum @ self.basis)
        with torch.autocast("cpu", dtype=torch.float16):
            fake = self.net_g(spectrum)
            real_score, fake_score = self.net_d(sound), self.net_d(fake.detach())
        loss_d = (real_score.float() - 1).square().mean() + fake_score.float().square().mean()
        self.update(self.optim_d, loss_d)
        with torch.autocast("cpu", dtype=torch.float16):
            fake_score = self.net_d(fake)
        loss_g = (fake_score.float() - 1).square().mean() + 45 * F.l1_loss(
            fake.float(), sound, reduction="sum"
        )
        self.update(self.optim_g, loss_g)
        self.scaler.update()
        return loss_d.item(), loss_g.item()


training = Training()
for number in range(6):
    loss_d, loss_g = training.step(torch.rand(4, FRAMES, BINS))
    print(f"{number}  discriminator {loss_d:.4f}  generator {loss_g:.4f}")
