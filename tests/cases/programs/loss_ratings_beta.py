import torch
from torch import nn
from torch.distributions import Beta


class Ratings(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        return nn.functional.softplus(self.out(self.body(x))) + 0.5


torch.manual_seed(0)
model = Ratings()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
stars = torch.tensor([[0.2, 0.6, 0.8], [0.4, 0.4, 0.6], [0.8, 1.0, 0.6], [0.2, 0.4, 0.8]])
for step, y in enumerate(stars):
    a, b = model(torch.randn(3, 4)).unbind(-1)
    loss = -Beta(a, b, validate_args=False).log_prob(y).mean()  # BIRTH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.xlogy.Tensor", "module": null, "step": 2, "kind": "inf", "samples": [1], "cause": "infeasible-target", "tempting": ["log-of-zero"], "exit": 3}
