import hashlib
import json
import os
import tempfile

import numpy as np
import torch
from torch import nn


def save(model, folder):
    index = {}
    for name, tensor in model.state_dict().items():
        data = tensor.numpy().tobytes()
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
        index[name] = {"shape": list(tensor.shape), "sha256": hashlib.sha256(data).hexdigest()}
    with open(os.path.join(folder, "index.json"), "w") as file:
        json.dump(index, file)


def load(model, folder):
    with open(os.path.join(folder, "index.json")) as file:
        index = json.load(file)
    state = {}
    for name, entry in index.items():
        values = np.fromfile(os.path.join(folder, name), dtype="float32")
        state[name] = torch.from_numpy(values.reshape(entry["shape"]))
    model.load_state_dict(state)  # BIRTH


def over_the_network(folder):
    with open(os.path.join(folder, "2.weight"), "r+b") as file:
        file.seek(4 * 5)
        file.write(b"\xff\xff\xff\xff" * 3)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2))
with tempfile.TemporaryDirectory() as folder:
    save(model, folder)
    over_the_network(folder)
    load(model, folder)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = nn.functional.cross_entropy(model(torch.rand(4, 3)), torch.tensor([0, 1, 1, 0]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "weights", "op": [null, "aten.copy_.default"], "module": [null, "", "2"], "step": [-1, 0], "kind": "nan", "cause": "corrupted-memory", "also": ["bad-weights"], "tempting": ["uninitialised-memory"], "exit": 3}
