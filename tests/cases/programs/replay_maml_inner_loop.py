import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(1, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


net = Regressor()
outer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(5):
    x, y = torch.randn(10, 1), torch.randn(10, 1)
    inner_loss = (net(x[:5]) - y[:5]).pow(2).mean()
    names, weights = zip(*net.named_parameters(), strict=True)
    gradients = torch.autograd.grad(inner_loss, weights, create_graph=True)
    rate = 0.01 if step < 3 else 1e3
    adapted = {n: w - rate * g for n, w, g in zip(names, weights, gradients, strict=True)}
    variance = functional_call(net, adapted, (x[5:],)).exp()  # BIRTH
    loss = ((y[5:] ** 2) / variance + variance).mean()
    outer.zero_grad()
    loss.backward()
    outer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.exp.default", "module": null, "step": 3, "kind": "inf", "cause": "overflow", "also": ["divergence", "bad-hyperparameter"], "exit": 3}
