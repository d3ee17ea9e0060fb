"""Contrast heart beats by rhythm class; embeddings are not normalised."""

import torch
from torch import nn

torch.manual_seed(0)


def beats(count, artefact=None):
    """One beat per row, two rhythm classes."""
    kind = torch.arange(count) % 2
    time = torch.linspace(0, 1, 64)
    wave = torch.exp(-((time - 0.4) ** 2) / 0.004) + 0.4 * kind[:, None] * torch.exp(
        -((time - 0.7) ** 2) / 0.01
    )
    wave = wave + 0.05 * torch.randn(count, 64)
    if artefact is not None:
        wave[artefact] *= 40  # the electrode came loose
    return wave, kind


def rhythm_contrast(embedding, kind, temperature=0.2):
    similarity = embedding @ embedding.t() / temperature
    logits = similarity - similarity.max(dim=1, keepdim=True).values.detach()
    not_self = ~torch.eye(len(kind), dtype=torch.bool)
    positive = (kind[:, None] == kind[None, :]) & not_self
    partition = (torch.exp(logits) * not_self).sum(dim=1, keepdim=True)
    log_prob = logits - torch.log(partition)
    return -((log_prob * positive).sum(dim=1) / positive.sum(dim=1)).mean()


encoder = nn.Sequential(
    nn.Unflatten(1, (1, 64)),
    nn.Conv1d(1, 8, 7, stride=2, padding=3),
    nn.ReLU(),
    nn.Conv1d(8, 16, 7, stride=2, padding=3),
    nn.ReLU(),
    nn.AdaptiveAvgPool1d(1),
    nn.Flatten(),
    nn.Linear(16, 12),
)
optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-3)
for step in range(10):
    wave, kind = beats(16, artefact=9 if step == 7 else None)
    loss = rhythm_contrast(encoder(wave), kind)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")
