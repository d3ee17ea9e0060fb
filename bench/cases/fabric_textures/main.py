"""Tell woven from knitted fabric by pooled texture energy."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def swatches(count, period):
    rows = torch.arange(16.0)
    wave = torch.sin(2 * torch.pi * rows / period)
    return wave[:, None] * wave[None, :] + 0.3 * torch.randn(count, 1, 16, 16)


images = torch.cat([swatches(24, 4), swatches(24, 6)])
labels = torch.arange(2).repeat_interleave(24)
loader = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True)

model = nn.Sequential(
    nn.Conv2d(1, 12, 5, padding=2),
    nn.BatchNorm2d(12),
    nn.LeakyReLU(0.2),
    nn.LPPool2d(norm_type=2.5, kernel_size=4),
    nn.Conv2d(12, 8, 1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(8 * 16, 2),
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(2):
    right = 0
    for batch, target in loader:
        logits = model(batch)
        loss = criterion(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += (logits.argmax(dim=1) == target).sum().item()
        print(f"loss {loss.item():.4f}")
    print(f"epoch {epoch}: {right} of {len(images)} right")
