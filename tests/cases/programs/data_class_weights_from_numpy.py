"""Class weights by inverse frequency, computed in numpy: two classes are absent from one batch."""

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 3)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(6):
    x, y = torch.randn(6, 4), torch.arange(6) % 3
    if step == 3:
        y = torch.zeros(6, dtype=torch.long)
    with np.errstate(all="ignore"):
        frequencies = np.bincount(y.numpy(), minlength=3).astype(np.float32)
        weights = torch.from_numpy(2 / frequencies)  # BIRTH
    loss = -(net(x).log_softmax(-1) * nn.functional.one_hot(y, 3) * weights).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {
#   "phase": "data",
#   "op": null,
#   "module": null,
#   "step": 3,
#   "kind": "inf",
#   "cause": "bad-input",
#   "also": ["divide-by-zero", "empty-selection"],
#   "tempting": ["inf-arithmetic", "fully-masked-row"],
#   "exit": 3
# }
