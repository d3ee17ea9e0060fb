import torch
from torch import nn


class Spectrum(nn.Module):
    """Classifies a recording by the energy in its frequency bands."""

    def __init__(self):
        super().__init__()
        self.bands = nn.Linear(256, 64)
        self.head = nn.Linear(64, 5)

    def forward(self, wave):
        band = self.bands(wave)
        energy = band * band  # BIRTH
        return self.head(torch.log1p(energy) / 8)


torch.manual_seed(0)
model = Spectrum().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
for step in range(12):
    wave = torch.randn(16, 256, device="cuda")
    if step == 7:
        wave[5] *= 3000  # somebody hit the microphone
    y = torch.randint(0, 5, (16,), device="cuda")
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(wave), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(step, loss.item(), scaler.get_scale())

# truth:
# {"phase": "forward", "op": "aten.mul.Tensor", "module": "", "step": 7, "kind": "inf", "samples": [5], "cause": "half-overflow", "tempting": ["overflow", "bad-input", "amp-misuse"], "needs": "cuda", "exit": 3}
