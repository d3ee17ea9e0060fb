import torch
from torch import nn

torch.manual_seed(0)


class VAEDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Upsample(scale_factor=2)
        self.conv1 = nn.Conv2d(4, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, z):
        h = nn.functional.silu(self.conv1(self.up(z)))
        return torch.tanh(self.mix(h))

    def mix(self, h):
        return self.conv2(h) - self.conv2(h).mean(dim=(2, 3), keepdim=True)  # BIRTH


decoder = VAEDecoder()
with torch.no_grad():
    decoder.conv1.weight.mul_(300)
    decoder.conv2.weight.abs_().mul_(60)
decoder = decoder.half().eval()
with torch.no_grad():
    for scale in (0.01, 0.05, 20.0):
        latent = torch.randn(1, 4, 4, 4).half() * scale
        image = decoder(latent)
        print(scale, image.float().mean().item())

# truth:
# {"phase": "forward", "op": "aten.convolution.default", "module": "conv2", "step": 2, "kind": "inf", "samples": [0], "cause": "half-overflow", "exit": 3}
