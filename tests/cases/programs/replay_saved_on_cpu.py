import torch
from torch import nn

torch.manual_seed(0)


class Radius(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 3, bias=False)

    def forward(self, x):
        return self.project(x).pow(2).sum(dim=1).sqrt()  # BIRTH


net = Radius()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(5):
    x = torch.randn(3, 4)
    if step == 3:
        x[1] = 0.0
    with torch.autograd.graph.save_on_cpu():
        loss = (net(x) - 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": "", "step": 3, "kind": "inf", "cause": "singular-gradient", "exit": 3}
