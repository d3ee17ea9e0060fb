import torch
from torch import nn

torch.use_deterministic_algorithms(True)


class HeavyBall(torch.optim.Optimizer):
    def __init__(self, params, lr=0.01, momentum=0.9):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "velocity" not in state:
                    state["velocity"] = torch.empty_like(p)  # BIRTH
                state["velocity"].mul_(group["momentum"]).add_(p.grad)
                p.add_(state["velocity"], alpha=-group["lr"])


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = HeavyBall(model.parameters())
for step in range(4):
    x = torch.randn(6, 4)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "optimizer", "op": [null, "aten.empty_like.default"], "module": null, "step": 0, "kind": "nan", "cause": "uninitialised-memory", "tempting": ["optimizer-state"], "exit": 3}
