import os
import tempfile

import torch
from torch import nn


def net():
    return nn.Sequential(nn.Conv1d(2, 6, 3), nn.BatchNorm1d(6), nn.ReLU(), nn.Flatten(), nn.Linear(36, 2))


def train_job(path):
    torch.manual_seed(1)
    model = net()
    state = model.state_dict()
    state["4.weight"][1, 20] = float("nan")  # the job had diverged when it saved
    torch.save(state, path)


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "last.pt")
    train_job(path)
    with torch.device("meta"):
        model = net()
    model.load_state_dict(torch.load(path, mmap=True, weights_only=True), assign=True)  # BIRTH
    model.eval()
    for call in range(2):
        with torch.no_grad():
            print(call, model(torch.randn(3, 2, 8)).argmax(-1).tolist())

# truth:
# {"phase": "weights", "op": null, "module": [null, "", "4"], "step": [-1, 0], "kind": "nan", "cause": "bad-weights", "tempting": ["uninitialised-memory", "corrupted-memory"], "exit": 3}
