"""Style transfer by moments: match mean and covariance of features with the Bures distance."""

import torch
from torch import nn

torch.manual_seed(0)


def square_root(matrix):
    """Root of a symmetric positive matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors @ torch.diag(values.clamp(min=0).sqrt()) @ vectors.mT


def bures(mean1, cov1, mean2, cov2):
    root = square_root(cov1)
    cross = torch.linalg.eigvalsh(root @ cov2 @ root).clamp(min=1e-12).sqrt().sum()
    return (mean1 - mean2).square().sum() + cov1.trace() + cov2.trace() - 2 * cross


class StyleModel(nn.Module):
    """The Gaussian of a style, as mean and covariance factor."""

    def __init__(self, channels):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(channels))
        self.factor = nn.Parameter(torch.eye(channels))

    def forward(self):
        return self.mean, self.factor @ self.factor.mT


def style_features(channels, pixels=500):
    mixing = torch.randn(channels, channels) / channels**0.5
    return torch.randn(pixels, channels) @ mixing + torch.rand(channels)


features = style_features(6)
wanted = features.mean(dim=0), torch.cov(features.mT)
style = StyleModel(6)
optimizer = torch.optim.Adam(style.parameters(), lr=0.02)
for step in range(20):
    loss = bures(*style(), *wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step}: distance {loss.item():.4f}")
