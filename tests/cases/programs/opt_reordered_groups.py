import torch
from torch import nn


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3))
        self.shift = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return x * self.gain + self.shift


def rmsprop(model, names):
    parameters = dict(model.named_parameters())
    return torch.optim.RMSprop([parameters[n] for n in names], lr=1e-3, centered=True)


def fit(optimizer, steps):
    for _ in range(steps):
        x = torch.rand(16, 3) * 0.1
        loss = (model(x) - 20).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # BIRTH
    print(round(loss.item(), 3))


torch.manual_seed(0)
model = Regressor()
first = rmsprop(model, ["gain", "shift"])
fit(first, 40)
state = first.state_dict()["state"]
second = rmsprop(model, ["shift", "gain"])
fresh = second.state_dict()
fresh["state"] = {
    i: {"step": s["step"], "square_avg": s["square_avg"], "grad_avg": state[1 - i]["grad_avg"]}
    for i, s in state.items()
}
second.load_state_dict(fresh)
fit(second, 3)

# truth:
# {"phase": "optimizer", "op": ["aten.sqrt_.default", "aten.sqrt.default"], "module": null, "step": 40, "kind": "nan", "cause": "optimizer-state", "tempting": ["invalid-domain"], "exit": 3}
