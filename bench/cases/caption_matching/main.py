"""Match photos with captions by a symmetric contrastive loss with a learned temperature."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Settings:
    pairs: int = 32
    width: int = 24
    temperature: float = 0.01
    rate: float = 2e-3
    steps: int = 20


class TwoTowers(nn.Module):
    def __init__(self, width, temperature):
        super().__init__()
        self.photo = nn.Sequential(nn.Linear(40, 64), nn.GELU(), nn.Linear(64, width))
        self.text = nn.Sequential(nn.Linear(30, 64), nn.GELU(), nn.Linear(64, width))
        self.log_scale = nn.Parameter(torch.ones([]) * (1 / temperature))

    def forward(self, photos, captions):
        photos = F.normalize(self.photo(photos), dim=-1)
        captions = F.normalize(self.text(captions), dim=-1)
        scale = self.log_scale.exp()
        return scale * photos @ captions.t()


class Trainer:
    def __init__(self, settings):
        self.settings = settings
        self.model = TwoTowers(settings.width, settings.temperature)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.rate)
        meaning = torch.randn(settings.pairs, 20)
        self.photos = meaning @ torch.randn(20, 40)
        self.captions = meaning @ torch.randn(20, 30)

    def step(self):
        logits = self.model(self.photos, self.captions)
        target = torch.arange(len(logits))
        loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


torch.manual_seed(0)
trainer = Trainer(Settings())
for step in range(trainer.settings.steps):
    print(step, f"{trainer.step():.4f}")
