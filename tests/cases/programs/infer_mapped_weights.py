import os
import tempfile

import numpy as np
import torch
from torch import nn

folder = tempfile.TemporaryDirectory()
path = os.path.join(folder.name, "weights.bin")
rng = np.random.default_rng(0)
rng.normal(scale=0.4, size=(4, 6)).astype("float32").tofile(path)


class Mapped(nn.Module):
    def __init__(self):
        super().__init__()
        weight = np.memmap(path, dtype="float32", mode="r+", shape=(4, 6))
        self.weight = nn.Parameter(torch.from_numpy(weight), requires_grad=False)

    def forward(self, x):
        return torch.relu(x @ self.weight.T)  # BIRTH


def nightly_sync(hour):
    """Somebody's backup job touches the file."""
    if hour == 3:
        handle = os.open(path, os.O_RDWR)
        os.pwrite(handle, b"\x7e", 4 * 8 + 3)
        os.close(handle)


torch.manual_seed(0)
model = nn.Sequential(Mapped(), nn.Linear(4, 2)).eval()
with torch.inference_mode():
    for hour in range(6):
        scores = model(40 * torch.rand(3, 6))
        print(hour, [round(v, 2) for v in scores[0].tolist()])
        nightly_sync(hour)

# truth:
# {"phase": "forward", "op": ["aten.matmul.default", "aten.mm.default"], "module": "0", "step": 4, "kind": "inf", "cause": "corrupted-memory", "tempting": ["bad-weights", "overflow"], "exit": 3}
