import torch
from torch import nn

torch.manual_seed(0)


class Radius(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 3, bias=False)
        self.head = nn.Linear(1, 1)

    def forward(self, x):
        radius = self.project(x).pow(2).sum(dim=1, keepdim=True).sqrt()  # BIRTH
        return self.head(radius)


net = Radius()
optimizers = {p: torch.optim.Adam([p], lr=1e-3) for p in net.parameters()}


def step_now(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in net.parameters():
    parameter.register_post_accumulate_grad_hook(step_now)
for step in range(5):
    x = torch.randn(3, 4)
    if step == 3:
        x[1] = 0.0
    loss = net(x).pow(2).mean()
    loss.backward()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": "", "step": [3, 11], "kind": "inf", "cause": "singular-gradient", "exit": 3}
