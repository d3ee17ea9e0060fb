import torch
from torch import nn

torch.manual_seed(0)


class Rms(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, decay=0.9):
        super().__init__(params, dict(lr=lr, decay=decay))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                v = self.state[p].setdefault("v", torch.zeros_like(p))
                v.lerp_(p.grad.square(), 1 - g["decay"])
                p.sub_(g["lr"] * p.grad / v.sqrt())  # BIRTH


class Multi(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, 6)
        self.heads = nn.ModuleDict({"a": nn.Linear(6, 3), "b": nn.Linear(6, 4)})

    def forward(self, x, task):
        return self.heads[task](self.body(x).tanh())


net = Multi()
opt = Rms(net.parameters())
for it, task in enumerate("aaabaaaba"):
    x = torch.randn(6, 5)
    out = net(x, task)
    if task == "a":
        loss = nn.functional.cross_entropy(out, torch.randint(0, 3, (6,)))
    else:
        loss = (out[:, :2] - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(it, task, loss.item())

# truth:
# {"phase": "optimizer", "op": "aten.div.Tensor", "module": null, "step": 3, "kind": "nan", "cause": "divide-by-zero", "also": ["bad-hyperparameter"], "exit": 3}
