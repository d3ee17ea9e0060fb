import torch
from torch import nn
from torch.distributions import Categorical


class Router(nn.Module):
    def __init__(self, servers=4):
        super().__init__()
        self.affinity = nn.Linear(5, servers)

    def forward(self, request, free):
        return torch.sigmoid(self.affinity(request)) * free


torch.manual_seed(0)
router = Router()
optimizer = torch.optim.Adam(router.parameters(), lr=1e-2)
for tick in range(6):
    request, free = torch.randn(3, 5), torch.ones(3, 4)
    chosen = torch.randint(0, 4, (3,))
    if tick == 4:
        free[1] = 0  # all servers are busy
    policy = Categorical(probs=router(request, free), validate_args=False)  # BIRTH
    loss = -(policy.log_prob(chosen) * torch.rand(3)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(tick, round(loss.item(), 4))

# truth:
# {"phase": "loss", "op": "aten.div.Tensor", "module": null, "step": 4, "kind": "nan", "samples": [1], "cause": "invalid-probabilities", "tempting": ["log-of-zero", "divide-by-zero", "infeasible-target"], "exit": 3}
