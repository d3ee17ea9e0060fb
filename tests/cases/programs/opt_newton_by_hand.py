import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 1))
params = list(model.parameters())


def newton(loss, damping=0.5):
    grads = torch.autograd.grad(loss, params, create_graph=True)
    curvature = [torch.autograd.grad(g.sum(), p, retain_graph=True)[0] for p, g in zip(params, grads)]
    with torch.no_grad():
        for p, g, h in zip(params, grads, curvature):
            p -= damping * g / h.abs()  # BIRTH


for step in range(4):
    x = torch.randn(9, 3)
    if step == 2:
        x[:, 1] = 0.0  # a sensor is off
    loss = (model(x).squeeze(1) - x.sum(1)).pow(2).mean()
    newton(loss)
    print(step, loss.item())

# truth:
# {"phase": ["optimizer", "weights"], "op": "aten.div.Tensor", "module": null, "step": [2, 3], "kind": "nan", "cause": "divide-by-zero", "exit": 3}
