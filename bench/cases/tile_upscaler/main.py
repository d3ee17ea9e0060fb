import torch
import torch.nn.functional as F
from torch import nn


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(F.leaky_relu(self.conv1(x), 0.2))


class Upscaler(nn.Module):
    def __init__(self, width=16, blocks=14):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.trunk = nn.Sequential(*(ResidualBlock(width) for _ in range(blocks)))
        self.last = nn.Conv2d(width, 12, 3, padding=1)

    def forward(self, tile):
        return F.pixel_shuffle(self.last(self.trunk(self.first(tile))), 2)


def load(seed):
    """The weights as they were published: float32, no normalisation layers, inputs from 0 to 255."""
    torch.manual_seed(seed)
    model = Upscaler()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, a=0.2)
            nn.init.zeros_(module.bias)
    with torch.no_grad():
        model.last.weight.mul_(0.01)
    return model.eval()


@torch.inference_mode()
def upscale(model, image, size=12):
    rows = []
    for top in range(0, image.size(1), size):
        tiles = image[:, top : top + size].split(size, dim=2)
        with torch.autocast("cpu", dtype=torch.float16):
            rows.append(torch.cat([model(tile.unsqueeze(0)).float() for tile in tiles], dim=3))
        print(f"rows {top}-{top + size}: mean {rows[-1].mean().item():.2f}")
    return torch.cat(rows, dim=2).clamp(0, 255).to(torch.uint8)


picture = torch.rand(3, 36, 24, generator=torch.Generator().manual_seed(8)) * 40
picture[:, 24:, :] += 200  # the sky
print(upscale(load(2), picture).shape)
