import torch
from torch import nn
from torch.func import functional_call


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(4, 6)
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x):
        h = torch.tanh(self.encode(x))
        return (h / self.scale).sum(dim=1)  # BIRTH


torch.manual_seed(0)
scorer = Scorer()
optimizer = torch.optim.SGD(scorer.parameters(), lr=0.01)
for step in range(6):
    x = torch.randn(3, 4)
    noisy = {name: p * (1 + 0.1 * torch.randn_like(p)) for name, p in scorer.named_parameters()}
    if step == 4:
        keep = torch.ones(6)
        keep[2] = 0.0
        noisy["scale"] = noisy["scale"] * keep
    loss = functional_call(scorer, noisy, (x,)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "", "step": 4, "kind": "inf", "cause": "divide-by-zero", "exit": 3}
