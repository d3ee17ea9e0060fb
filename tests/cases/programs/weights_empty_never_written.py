import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, dim):
        super().__init__()
        gain = torch.empty(dim)
        gain.fill_(float("nan"))  # BIRTH
        self.gain = nn.Parameter(gain)

    def forward(self, x):
        return x * self.gain


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.scale = Scale(4)

    def forward(self, x):
        return self.scale(self.fc(x))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    loss = net(torch.randn(2, 4)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())

# truth:
# {"phase": "weights", "op": [null, "aten.fill_.Scalar"], "module": [null, "", "scale"], "step": [-1, 0], "kind": "nan", "cause": "bad-weights", "also": ["uninitialised-memory"], "exit": 3}
