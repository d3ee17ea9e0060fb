import ctypes

import torch
from torch import nn

calls = {"n": 0}


def poll_sensor(address):
    """The driver of the room sensor hands its reading over in place."""
    calls["n"] += 1
    if calls["n"] == 4:
        ctypes.c_float.from_address(address).value = -0.0
        ctypes.c_float.from_address(address + 4).value = -3.0e38


class Thermostat(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(3, 6)
        self.out = nn.Linear(6, 1)

    def forward(self, x):
        h = torch.relu(self.inp(x))
        poll_sensor(h.data_ptr())
        energy = h.square().sum(dim=1, keepdim=True)  # BIRTH
        return self.out(h) + 0.1 * energy


torch.manual_seed(0)
model = Thermostat().eval()
with torch.no_grad():
    for minute in range(6):
        print(minute, model(torch.rand(2, 3)).flatten().tolist())

# truth:
# {"phase": "forward", "op": "aten.pow.Tensor_Scalar", "module": "", "step": 3, "kind": "inf", "samples": [0], "cause": "transient-fault", "tempting": ["overflow", "data-race"], "exit": 3}
