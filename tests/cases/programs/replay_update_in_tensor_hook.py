import torch
from torch import nn

torch.manual_seed(0)
body = nn.Linear(4, 3)
head = nn.Linear(3, 3, bias=False)
optimizer = torch.optim.SGD(head.parameters(), lr=0.01)


def fused_update(parameter):
    def update(gradient):
        parameter.data.add_(gradient, alpha=-1e-2)
        return torch.zeros_like(gradient)

    return update


for parameter in body.parameters():
    parameter.register_hook(fused_update(parameter))
for step in range(5):
    x = torch.randn(3, 4)
    features = torch.tanh(body(x))
    probe = features.detach().clone()
    if step == 3:
        probe[1] = 0.0
    length = head(probe).pow(2).sum(dim=1).sqrt()  # BIRTH
    loss = (features.mean(dim=1) - 1.0).pow(2).mean() + length.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": null, "step": 3, "kind": "inf", "cause": "singular-gradient", "exit": 3}
