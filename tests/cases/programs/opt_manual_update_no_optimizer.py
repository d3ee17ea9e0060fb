import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
for step in range(5):
    x = torch.randn(4, 3)
    loss = model(x).mean()
    if step == 2:
        loss = loss.clamp(min=1e6)  # a floor: no gradient passes
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            update = p.grad / p.grad.norm()  # BIRTH
            p -= 0.01 * update
    print(step, loss.item())

# truth:
# {"phase": ["optimizer", "weights"], "op": "aten.div.Tensor", "module": null, "step": [2, 3], "kind": "nan", "cause": "divide-by-zero", "exit": 3}
