import torch
from torch import nn


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Linear(6, 8)
        self.text = nn.Linear(6, 8)

    def forward(self, image, text):
        a, b = self.image(image), self.text(text)
        return a @ b.T  # BIRTH


torch.manual_seed(0)
model = TwoTower()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(5):
    image, text = torch.randn(4, 6), torch.randn(4, 6)
    if step == 3:
        image[2] *= 400
        text[2] = image[2]
        with torch.no_grad():
            model.text.weight.copy_(model.image.weight)
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(image, text)
    loss = nn.functional.cross_entropy(logits.float(), torch.arange(4))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(step, round(loss.item(), 3), scaler.get_scale())

# truth:
# {"phase": "forward", "op": "aten.mm.default", "module": "", "step": 3, "kind": "inf", "samples": [2], "cause": "half-overflow", "tempting": ["amp-misuse", "overflow"], "exit": 3}
