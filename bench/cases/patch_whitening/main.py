"""Sparse coding of image patches that are whitened by their principal components first."""

import torch
from torch import nn


def image(size, generator):
    """Smooth random blobs."""
    noise = torch.randn(1, 1, size, size, generator=generator)
    kernel = torch.ones(1, 1, 5, 5) / 25
    return nn.functional.conv2d(noise, kernel, padding=2)


def patches(picture, side=4):
    return nn.functional.unfold(picture, side).squeeze(0).t()


class Whitener:
    """PCA whitening that keeps the strongest components."""

    def __init__(self, keep):
        self.keep = keep

    def fit(self, data):
        self.mean = data.mean(dim=0)
        values, vectors = torch.linalg.eigh(torch.cov((data - self.mean).t()))
        weak = torch.arange(len(values)) < len(values) - self.keep
        self.values = values.masked_fill(weak, 0.0)
        self.vectors = vectors
        return self

    def __call__(self, data):
        rotated = (data - self.mean) @ self.vectors
        return rotated / self.values.sqrt() @ self.vectors.t()


class SparseCoder(nn.Module):
    def __init__(self, inputs, codes):
        super().__init__()
        self.encode = nn.Linear(inputs, codes)
        self.decode = nn.Linear(codes, inputs, bias=False)

    def forward(self, x):
        code = torch.relu(self.encode(x))
        return self.decode(code), code


torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)
data = patches(image(24, generator))
whiten = Whitener(keep=10).fit(data)
model = SparseCoder(16, 32)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, rows in enumerate(torch.randperm(len(data), generator=generator).split(64)):
    batch = whiten(data[rows])
    restored, code = model(batch)
    loss = (restored - batch).square().mean() + 0.01 * code.abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")
