"""Stereo matching; the ground truth has NaN where the other camera cannot see."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class StereoPairs(Dataset):
    def __init__(self, count, size=16):
        generator = torch.Generator().manual_seed(0)
        self.left = torch.rand(count, size, size, generator=generator)
        self.shift = torch.randint(1, 4, (count,), generator=generator)

    def __len__(self):
        return len(self.left)

    def __getitem__(self, index):
        left, shift = self.left[index], int(self.shift[index])
        right = torch.roll(left, -shift, dims=1)
        disparity = torch.full_like(left, float(shift))
        disparity[:, :shift] = float("nan")  # outside of the right picture
        return torch.stack([left, right]), disparity


class StereoNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 16, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 16, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 1, 1),
        )

    def forward(self, pair):
        return self.body(pair).squeeze(1)


def masked_error(found, wanted):
    visible = ~torch.isnan(wanted)
    return nn.functional.smooth_l1_loss(found[visible], wanted[visible])


torch.manual_seed(0)
model = StereoNet()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(3):
    for pair, disparity in DataLoader(StereoPairs(24), batch_size=6, shuffle=True):
        loss = masked_error(model(pair), disparity)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, f"{loss.item():.4f}")
