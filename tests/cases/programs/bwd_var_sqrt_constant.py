import torch
from torch import nn


class Style(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, bias=False)

    def forward(self, image):
        feature = self.conv(image).flatten(2)
        mean = feature.mean(-1)
        std = feature.var(-1).sqrt()  # BIRTH
        return torch.cat([mean, std], dim=1)


torch.manual_seed(0)
style = Style()
optimizer = torch.optim.Adam(style.parameters(), lr=1e-3)
target = torch.rand(2, 6)
for step in range(6):
    image = torch.rand(2, 1, 8, 8)
    if step == 4:
        image[0] = 0  # a black frame
    loss = nn.functional.mse_loss(style(image), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": "", "step": 4, "kind": "inf", "samples": [0], "cause": "singular-gradient", "exit": 3}
