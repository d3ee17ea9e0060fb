import torch
from torch import nn


class InstanceNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels, 1))

    def forward(self, x):
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True)
        return self.gain * centred * torch.rsqrt(variance + 1e-9)


class Stylist(nn.Module):
    def __init__(self, channels=4):
        super().__init__()
        self.first = nn.Conv1d(1, channels, 3, padding=1)
        self.norm = InstanceNorm(channels)
        self.last = nn.Conv1d(channels, 1, 3, padding=1)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


class Clips(torch.utils.data.Dataset):
    """Short pieces of sound; one was recorded while the microphone was off."""

    def __len__(self):
        return 18

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        clip = torch.randn(1, 32, generator=generator)
        return clip * (0.0 if i == 10 else 1.0)


torch.manual_seed(1)
model = Stylist().half().eval()
with torch.no_grad():
    model.first.bias.zero_()
compiled = torch.compile(model, backend="aot_eager")
with torch.no_grad():
    for number, clips in enumerate(torch.utils.data.DataLoader(Clips(), batch_size=3)):
        out = compiled(clips.half())
        print(number, out.float().abs().mean().item())
