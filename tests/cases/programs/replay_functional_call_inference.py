import torch
from torch import nn
from torch.func import functional_call, stack_module_state

torch.manual_seed(0)


class Gauge(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(3, 5)
        self.out = nn.Linear(5, 1)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x))).log()  # BIRTH


members = [Gauge() for _ in range(3)]
for member in members:
    nn.init.uniform_(member.out.weight, 0.1, 1.0)
    nn.init.constant_(member.out.bias, 0.5)
nn.init.constant_(members[1].out.bias, -9.0)
weights, _ = stack_module_state(members)
x = torch.randn(4, 3)
with torch.no_grad():
    answers = [functional_call(members[0], {n: w[i] for n, w in weights.items()}, (x,)) for i in range(3)]
print(torch.stack(answers).mean())

# truth:
# {"phase": "forward", "op": "aten.log.default", "module": "", "step": 1, "kind": "nan", "cause": "invalid-domain", "exit": 3}
