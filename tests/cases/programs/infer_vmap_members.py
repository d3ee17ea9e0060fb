import copy

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        h = torch.relu(self.a(x))
        h = h / h.amax(dim=-1, keepdim=True)  # BIRTH
        return self.b(h)


torch.manual_seed(0)
nets = [Net() for _ in range(3)]
with torch.no_grad():
    nets[1].a.bias.sub_(2.5)  # a member that is often silent
base = copy.deepcopy(nets[0]).to("meta")
parameters, buffers = stack_module_state(nets)


def member(p, b, x):
    return functional_call(base, (p, b), (x,))


with torch.no_grad():
    for call in range(3):
        outputs = vmap(member, in_dims=(0, 0, None))(parameters, buffers, torch.randn(5, 4))
        print(call, outputs.mean(0).tolist())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": ["", null], "step": [0, 1, 2], "kind": "nan", "cause": "divide-by-zero", "exit": 3}
