import torch
from torch import nn

torch.manual_seed(0)
unet = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 1), nn.Hardsigmoid())


class DiceLoss:
    def __call__(self, prediction, target):
        overlap = (prediction * target).sum(dim=(1, 2, 3))
        size = prediction.sum(dim=(1, 2, 3)) + target.sum(dim=(1, 2, 3))
        dice = 2 * overlap / size  # BIRTH
        return 1 - dice.mean()


dice = DiceLoss()
optimizer = torch.optim.Adam(unet.parameters(), lr=1e-3)
for epoch in range(3):
    image = torch.rand(2, 1, 6, 6)
    mask = (torch.rand(2, 1, 6, 6) > 0.5).float()
    if epoch == 2:
        mask[1] = 0
        with torch.no_grad():
            unet[2].bias.fill_(-50.0)
    loss = dice(unet(image), mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())

# truth:
# {"phase": "loss", "op": "aten.div.Tensor", "module": null, "step": 2, "kind": "nan", "samples": [1], "cause": "empty-selection", "also": ["divide-by-zero"], "exit": 3}
