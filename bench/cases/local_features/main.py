"""Train dense local descriptors that agree between two views of the same patch."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Patches(Dataset):
    """Pairs of views of a patch; the second is the first a little brighter and noisier."""

    def __init__(self, count, size=12):
        generator = torch.Generator().manual_seed(0)
        self.first = torch.rand(count, 1, size, size, generator=generator)
        self.first[13] = 0.0  # cut from the black border of a scan
        self.noise = 0.02 * torch.randn(count, 1, size, size, generator=generator)

    def __len__(self):
        return len(self.first)

    def __getitem__(self, index):
        view = self.first[index]
        return view, 1.1 * view + self.noise[index] * (view > 0)


class DenseFeatures(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, bias=False)
        self.conv2 = nn.Conv2d(16, 16, 3, bias=False)

    def forward(self, image):
        return F.relu(self.conv2(F.relu(self.conv1(image))))


class SoftDetection(nn.Module):
    """Score of a place: locally and among the channels the strongest."""

    def forward(self, features):
        strongest = features.amax(dim=1, keepdim=True)
        channel_score = features / strongest
        local = torch.exp(features - features.amax(dim=(2, 3), keepdim=True))
        local_score = local / F.avg_pool2d(local, 3, stride=1, padding=1)
        score = (channel_score * local_score).amax(dim=1)
        return score / score.sum(dim=(1, 2), keepdim=True)


class DetectAndDescribe(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = DenseFeatures()
        self.detection = SoftDetection()

    def forward(self, image):
        features = self.features(image)
        return F.normalize(features, dim=1), self.detection(features)


torch.manual_seed(0)
model = DetectAndDescribe()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, (left, right) in enumerate(DataLoader(Patches(32), batch_size=4)):
    (d1, s1), (d2, s2) = model(left), model(right)
    mismatch = 1 - (d1 * d2).sum(dim=1)
    loss = (s1 * s2 * mismatch).sum(dim=(1, 2)).mean() + 0.01 * mismatch.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"batch {step}: {loss.item():.5f}")
