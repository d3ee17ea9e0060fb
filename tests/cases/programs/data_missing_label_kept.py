import torch
from torch import nn

torch.manual_seed(6)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(8):
    features, label, spread = torch.rand(6, 4), torch.randn(6, 1), torch.rand(6, 1) + 0.5
    counted = torch.ones(6, 1, dtype=torch.bool)
    counted[0] = False
    label[0] = spread[0] = 0.0  # 0 / 0 in a row that does not count
    if step == 5:
        label[3] = float("nan")  # BIRTH
    scaled = label / spread
    loss = (model(features) - scaled)[counted].pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": ["data", "loss"], "op": ["aten.fill_.Tensor", null], "module": null, "step": 5, "kind": "nan", "cause": "bad-input", "tempting": ["divide-by-zero"], "exit": 3}
