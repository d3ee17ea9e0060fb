"""Two teachers, and a look at a shape, before the first update: none of these calls is a step."""

import torch
from torch import nn

torch.manual_seed(0)
first, second = nn.Linear(4, 2), nn.Linear(4, 2)
features = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten())
with torch.no_grad():
    width = features(torch.zeros(1, 1, 6)).shape[1]
    features(torch.zeros(2, 1, 6))
student = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))
optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
for step in range(5):
    x = torch.randn(8, 4)
    if step == 3:
        x[5] = 0.0
    x = x / x.norm(dim=1, keepdim=True)  # BIRTH
    with torch.no_grad():
        target = first(x) + second(x)
    loss = (student(x) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {
#   "phase": "data",
#   "op": "aten.div.Tensor",
#   "module": null,
#   "step": 3,
#   "kind": "nan",
#   "samples": [5],
#   "cause": "divide-by-zero",
#   "exit": 3
# }
