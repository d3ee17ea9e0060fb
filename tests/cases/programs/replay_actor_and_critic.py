import torch
from torch import nn

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.pi = nn.Linear(8, 3)
        self.v = nn.Linear(8, 1)

    def forward(self, x):
        h = self.body(x).relu()
        return self.pi(h), self.v(h).squeeze(1)


net = Policy()
actor = torch.optim.Adam([*net.body.parameters(), *net.pi.parameters()], 1e-3, eps=0.0)
critic = torch.optim.SGD(net.v.parameters(), 1e-4)
for it in range(8):
    x = torch.randn(12, 4)
    if it == 0:
        with torch.no_grad():
            net.body.bias.fill_(6.0)
    if it == 4:
        actor.state.clear()
        with torch.no_grad():
            net.body.bias[2] = -90.0  # a unit dies just as the moments start anew
    logits, v = net(x)
    loss = nn.functional.cross_entropy(logits, torch.randint(0, 3, (12,))) + (v - 1).pow(2).mean()
    net.zero_grad()
    loss.backward()
    actor.step()  # BIRTH
    critic.step()
    print(it, loss.item())

# truth:
# {"phase": "optimizer", "op": ["aten.addcdiv_.default", "aten.div.Tensor", "aten.div_.Tensor"], "module": null, "step": 8, "kind": "nan", "cause": "bad-hyperparameter", "also": ["divide-by-zero"], "exit": 3}
