import torch
from torch import nn


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base = base(self.param_groups, **kwargs)

    @torch.no_grad()
    def climb(self):
        norm = torch.norm(torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"]]))
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["away"] = p.grad * (group["rho"] / norm)  # BIRTH
                p.add_(self.state[p]["away"])

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["away"])
        self.base.step()


def margin_loss(score, label):
    return torch.relu(1 - label * score).mean()


torch.manual_seed(0)
model = nn.Linear(2, 1)
with torch.no_grad():
    model.weight.copy_(torch.tensor([[1.0, 1.0]]))
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.5)
for step in range(20):
    x = torch.randn(8, 2)
    label = torch.sign(x.sum(1))
    x = x + 2.0 * label.unsqueeze(1)  # easy to separate: soon no sample is inside the margin
    loss = margin_loss(model(x).squeeze(1), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.climb()
    optimizer.zero_grad()
    margin_loss(model(x).squeeze(1), label).backward()
    optimizer.step()
    print(step, round(loss.item(), 4))

# truth:
# {"phase": ["optimizer", "weights"], "op": ["aten.mul.Tensor", "aten.reciprocal.default", "aten.div.Tensor"], "module": [null, ""], "step": 0, "kind": ["nan", "inf"], "cause": "divide-by-zero", "exit": 3}
