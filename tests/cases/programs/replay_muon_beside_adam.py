import torch
from torch import nn

torch.manual_seed(0)


def newton_schulz(g, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / g.norm()  # BIRTH
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.0):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    def step(self):
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    buf = self.state[p].setdefault("buf", torch.zeros_like(p))
                    buf.mul_(group["momentum"]).add_(p.grad)
                    p.add_(newton_schulz(buf), alpha=-group["lr"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(5, 8)
        self.mid = nn.Linear(8, 8)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        return self.out(torch.relu(self.mid(torch.relu(self.inp(x)))))


net = Net()
matrices = [p for p in net.parameters() if p.ndim == 2]
rest = [p for p in net.parameters() if p.ndim != 2]
muon, adam = Muon(matrices), torch.optim.AdamW(rest, 1e-3)
for it in range(6):
    if it == 4:
        with torch.no_grad():
            net.mid.bias.fill_(-100.0)
    x = torch.randn(8, 5)
    loss = nn.functional.cross_entropy(net(x), torch.randint(0, 2, (8,)))
    net.zero_grad()
    loss.backward()
    muon.step()
    adam.step()
    print(it, loss.item())

# truth:
# {"phase": "optimizer", "op": "aten.div.Tensor", "module": null, "step": 8, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
