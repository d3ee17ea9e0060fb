import torch
from torch import nn

torch.manual_seed(4)
model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(8):
    features = torch.randn(8, 5)
    label = torch.randn(8, 1)
    deviation = torch.rand(8, 1) + 0.5
    label[1] = label[6] = float("nan")  # not measured
    if step == 6:
        deviation[3] = 0.0
    scaled = label / deviation  # BIRTH
    measured = ~torch.isnan(label)
    loss = (model(features)[measured] - scaled[measured]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": ["data", "loss"], "op": "aten.div.Tensor", "module": null, "step": 6, "kind": "inf", "samples": [3], "cause": "divide-by-zero", "also": ["infeasible-target"], "tempting": ["bad-input"], "exit": 3}
