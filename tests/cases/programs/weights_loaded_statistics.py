import io

import torch
from torch import nn


def network():
    return nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14, 2))


def from_an_earlier_run():
    """Numbers of a run whose statistics went bad before its last checkpoint."""
    torch.manual_seed(0)
    state = {name: value.tolist() for name, value in network().state_dict().items()}
    state["1.running_var"][5] = float("nan")
    return io.StringIO(repr(state))


checkpoint = eval(from_an_earlier_run().read(), {"nan": float("nan")})
model = network()
model.load_state_dict({name: torch.tensor(value) for name, value in checkpoint.items()})  # BIRTH
model.eval()
with torch.no_grad():
    for request in range(2):
        print(model(torch.randn(4, 3, 16)).argmax(1))

# truth:
# {"phase": "weights", "op": [null, "aten.copy_.default"], "module": "1", "step": 0, "kind": "nan", "cause": "bad-weights", "tempting": ["running-stats"], "exit": 3}
