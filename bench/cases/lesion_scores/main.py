"""Mark lesions on skin images with a focal loss against the many easy pixels."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Skin(Dataset):
    def __init__(self, count, size=16):
        generator = torch.Generator().manual_seed(0)
        rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        centre = 4 + 8 * torch.rand(count, 2, 1, 1, generator=generator)
        self.mask = ((rows - centre[:, 0]) ** 2 + (columns - centre[:, 1]) ** 2 < 9).float()
        self.image = 4 * self.mask + 0.3 * torch.randn(count, size, size, generator=generator)

    def __len__(self):
        return len(self.mask)

    def __getitem__(self, index):
        return self.image[index, None], self.mask[index, None]


class FocalLoss(nn.Module):
    def __init__(self, gamma=0.5, alpha=0.25, eps=1e-8):
        super().__init__()
        self.gamma, self.alpha, self.eps = gamma, alpha, eps

    def forward(self, logits, target):
        p = torch.sigmoid(logits)
        hit = self.alpha * torch.pow(1 - p, self.gamma) * target * torch.log(p + self.eps)
        pass_weight = (1 - self.alpha) * torch.pow(p + self.eps, self.gamma)
        miss = pass_weight * (1 - target) * torch.log(1 - p + self.eps)
        return -(hit + miss).mean()


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
optimizer = torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.9)
focal = FocalLoss()
for epoch in range(12):
    for image, mask in DataLoader(Skin(24), batch_size=8):
        loss = focal(net(image), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, f"{loss.item():.5f}")
