import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)


def softplus_by_hand(x):
    e = torch.exp(x)  # BIRTH
    return torch.where(x > 20, x, torch.log(1 + torch.where(x > 20, 0.0, e)))


optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(5):
    x = torch.randn(4, 3)
    if i == 3:
        x[2] = 400 * model.weight.detach()[0].sign()
    loss = softplus_by_hand(model(x)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, loss.item())

# truth:
# {"phase": ["loss", "backward"], "op": ["aten.exp.default", "aten.mul.Tensor"], "module": null, "step": 3, "kind": ["inf", "nan"], "samples": [2], "cause": "where-gradient", "also": ["overflow"], "exit": 3}
