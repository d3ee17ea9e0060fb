import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(10, 6)

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=-1)


def info_nce(a, b, tau):
    sim = a @ b.T
    e = torch.exp(sim / tau)  # BIRTH
    return -torch.log(e.diagonal() / e.sum(dim=1)).mean()


torch.manual_seed(0)
encoder = Encoder()
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(4, 10)
    first = encoder(x + 0.01 * torch.randn_like(x))
    second = encoder(x)
    tau = 0.5 / 2**step if step < 5 else 0.01
    loss = info_nce(first, second, tau)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.exp.default", "module": null, "step": 5, "kind": "inf", "cause": "overflow", "exit": 3}
