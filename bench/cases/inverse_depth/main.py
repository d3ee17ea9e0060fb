import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class DepthScans(Dataset):
    """Frames of a depth camera. The network learns the inverse depth, which is large near by."""

    max_depth = 10.0

    def __init__(self, frames):
        self.frames = frames

    def __len__(self):
        return self.frames

    def read(self, i):
        rng = np.random.default_rng(i)
        colour = rng.random((3, 12, 12), dtype=np.float32)
        depth = 1.0 + 8.0 * rng.random((1, 12, 12), dtype=np.float32)
        if i == 17:
            depth[0, 4:6, 7] = 0.0  # the sensor had no return here
        return colour, depth

    def __getitem__(self, i):
        colour, depth = self.read(i)
        with np.errstate(divide="ignore"):
            return colour, self.max_depth / depth


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, image):
        return self.out(F.elu(self.up(F.elu(self.down(image)))))


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(DepthScans(24), batch_size=4, num_workers=2)
    model = Encoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step, (image, target) in enumerate(loader):
        loss = F.l1_loss(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, round(loss.item(), 4))
