import torch
from torch.func import grad_and_value

torch.manual_seed(0)
weights = {"w": torch.randn(3) * 0.1, "b": torch.zeros(())}


def loss_of(weights, x, y):
    rate = x @ weights["w"] + weights["b"]
    return (rate.exp() - y * rate).mean()  # BIRTH


step_of = grad_and_value(loss_of)
for step in range(6):
    x, y = torch.randn(8, 3), torch.rand(8)
    if step == 4:
        x[5] = 1e4 * weights["w"].sign()
    gradients, loss = step_of(weights, x, y)
    weights = {name: w - 0.1 * gradients[name] for name, w in weights.items()}
    print(step, loss.item())

# truth:
# {"phase": ["forward", "loss"], "op": "aten.exp.default", "module": null, "step": 4, "kind": "inf", "cause": "overflow", "exit": 3}
