import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Conv2d(3, 2, 3, padding=1)

    def forward(self, x, level, prompt):
        condition = torch.stack([level.expand_as(x[:, 0]), prompt[:, None, None].expand_as(x[:, 0])], 1)
        return self.net(torch.cat([x, condition[:, :1]], 1)) * prompt[:, None, None, None].clamp(max=1)


@torch.no_grad()
def sample(model, prompt, steps=5, guidance=4.0, phi=0.7):
    x = torch.randn(len(prompt), 2, 6, 6)
    for level in torch.linspace(1, 0.2, steps):
        with_text = model(x, level, prompt)
        without = model(x, level, torch.ones_like(prompt))
        noise = without + guidance * (with_text - without)
        if level < 0.9:
            spread = with_text.std(dim=(1, 2, 3), keepdim=True) / noise.std(dim=(1, 2, 3), keepdim=True)  # BIRTH
            noise = phi * noise * spread + (1 - phi) * noise
        x = x - 0.2 * noise
    return x


torch.manual_seed(0)
model = Denoiser().eval()
for request in ([2.0, 3.0], [1.0, 5.0]):
    print(request, round(sample(model, torch.tensor(request)).std().item(), 4))
print("off", round(sample(model, torch.tensor([2.0, 0.0]), guidance=1.0).std().item(), 4))

# truth:
# {"phase": ["loss", "forward", "data"], "op": "aten.div.Tensor", "module": null, "step": [23, 24], "kind": "nan", "samples": [1], "cause": "divide-by-zero", "exit": 3}
