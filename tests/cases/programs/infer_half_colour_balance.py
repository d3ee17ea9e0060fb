import torch
from torch import nn


class GreyWorld(nn.Module):
    """Scales each image so that its mean brightness is one half."""

    def forward(self, image):
        brightness = image.mean(dim=(1, 2, 3), keepdim=True)
        return 0.5 * image / brightness  # BIRTH


torch.manual_seed(0)
model = nn.Sequential()
model.add_module("balance", GreyWorld())
model.add_module("conv", nn.Conv2d(3, 4, 3))
model.add_module("pool", nn.AdaptiveAvgPool2d(1))
model = model.half().eval()
with torch.no_grad():
    for batch in range(4):
        image = torch.rand(2, 3, 6, 6).half()
        if batch == 2:
            image[0] = 0  # the shutter was closed
        print(batch, model(image).flatten(1).argmax(1).tolist())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "balance", "step": 2, "kind": "nan", "samples": [0], "cause": "divide-by-zero", "tempting": ["half-underflow"], "exit": 3}
