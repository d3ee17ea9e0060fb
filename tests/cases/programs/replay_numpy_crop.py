import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
np.random.seed(4)


class Cropped(nn.Module):
    """Looks at a random window of the signal."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        start = int(abs(np.random.randn()) * 10) % 12
        window = x[:, start : start + 4]
        scaled = window / window.std(dim=1, keepdim=True)  # BIRTH
        return self.out(scaled)


net = Cropped()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(40):
    x = torch.randn(3, 16)
    if step > 4:
        x[1, 11:] = 0.0  # silence at the end of one signal
    loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "", "step": 9, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
