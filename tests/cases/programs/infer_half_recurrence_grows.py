import torch
from torch import nn


class LinearRNN(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.transition = nn.Linear(dim, dim, bias=False)
        self.state = None

    def forward(self, x):
        if self.state is None:
            self.state = torch.zeros_like(x)
        self.state = self.transition(self.state) + x  # BIRTH
        return self.state


torch.manual_seed(0)
rnn = LinearRNN()
nn.init.eye_(rnn.transition.weight)
rnn.transition.weight.data.mul_(4)
rnn = rnn.half().eval()
x = torch.ones(2, 8).half()
with torch.inference_mode():
    for token in range(12):
        y = rnn(x)
print(y.float().sum().item())

# truth:
# {"phase": "forward", "op": ["aten.linear.default", "aten.mm.default"], "module": "transition", "step": 8, "kind": "inf", "samples": [0, 1], "cause": "half-overflow", "also": ["divergence"], "exit": 3}
