"""Two small cases, a bad one and a healthy one, written into a folder for the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BAD = """\
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        h = self.fc(x)
        return h / x.norm(dim=1, keepdim=True)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
data = torch.randn(4, 8, 4)
data[2, 3] = 0
for step, x in enumerate(data):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
"""
TRUTH = {
    "title": "a row of zeros is divided by its norm",
    "source": "someone/something#1",
    "group": "forward",
    "healthy": False,
    "phase": "forward",
    "op": "aten.div.Tensor",
    "line": 14,
    "module": "",
    "cause": "divide-by-zero",
    "samples": [3],
    "step": 2,
    "kind": "inf",
    "fix": [{"line": 14, "with": "        return h / (x.norm(dim=1, keepdim=True) + 1e-3)"}],
    "why": "The norm of a row of zeros is 0.",
}
GRADIENT = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 3)
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for step, x in enumerate(torch.randn(4, 8, 4)):
    y = model(x)
    target = y[0].detach() if step == 2 else torch.zeros(3)
    distance = torch.sqrt(((y - target) ** 2).sum(1))
    loss = distance.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
"""
GRADIENT_TRUTH = {
    **TRUTH,
    "group": "backward",
    "phase": "backward",
    "line": 10,
    "module": None,
    "cause": "singular-gradient",
    "samples": [0],
    "fix": [{"line": 10, "with": "    distance = torch.sqrt(((y - target) ** 2).sum(1) + 1e-8)"}],
}
DATA = """\
import numpy as np
import torch
from torch import nn

table = np.random.RandomState(0).rand(24, 4).astype("float32")
table[17, 2] = np.nan
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(3):
    x = torch.from_numpy(table[8 * step : 8 * step + 8])
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
DATA_TRUTH = {
    **TRUTH,
    "group": "data",
    "phase": "data",
    "op": None,
    "line": 10,
    "module": None,
    "cause": "bad-input",
    "samples": [1],
    "kind": "nan",
    "fix": [{"after": 6, "with": "table = np.nan_to_num(table)"}],
}
HEALTHY = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
mask = torch.triu(torch.ones(4, 4), 1).bool()
for step in range(4):
    scores = model(torch.randn(4, 4)).masked_fill(mask, float("-inf"))
    loss = scores.softmax(-1).pow(2).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
"""
HEALTHY_TRUTH = {
    "title": "a causal mask",
    "source": None,
    "group": "mask",
    "healthy": True,
    "why": "Each row keeps at least one score.",
}


def write(cases: Path, name: str, script: str, truth: dict[str, Any] | str) -> Path:
    folder = cases / name
    folder.mkdir(parents=True)
    (folder / "main.py").write_text(script)
    (folder / "truth.json").write_text(truth if isinstance(truth, str) else json.dumps(truth))
    return folder
