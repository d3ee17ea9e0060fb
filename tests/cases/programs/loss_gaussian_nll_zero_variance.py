import torch
from torch import nn


class MeanVariance(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 8)
        self.mean, self.var = nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x):
        h = torch.tanh(self.body(x))
        return self.mean(h), torch.relu(self.var(h))


def nll(mean, var, y):
    quadratic = (y - mean) ** 2 / var  # BIRTH
    return 0.5 * (torch.log(var + 1e-6) + quadratic).mean()


torch.manual_seed(0)
net = MeanVariance()
with torch.no_grad():
    net.var.bias.fill_(2.0)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for i in range(4):
    if i == 3:
        with torch.no_grad():
            net.var.bias.fill_(-9.0)
    x, y = torch.randn(2, 3), torch.randn(2, 1)
    loss = nll(*net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, loss.item())

# truth:
# {"phase": "loss", "op": "aten.div.Tensor", "module": null, "step": 3, "kind": "inf", "samples": [0, 1], "cause": "divide-by-zero", "exit": 3}
