import torch
from torch import nn
from torch.func import jacrev, vmap


class Flow(nn.Module):
    """The log determinant of its own Jacobian, by torch.func."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 3)

    def transform(self, x):
        return x + torch.tanh(self.net(x))

    def forward(self, x):
        jacobian = vmap(jacrev(self.transform))(x)
        return self.transform(x), jacobian.det().abs().log()  # BIRTH


torch.manual_seed(0)
flow = Flow()
optimizer = torch.optim.SGD(flow.parameters(), lr=0.01)
for step in range(5):
    x = torch.randn(4, 3)
    if step == 3:
        with torch.no_grad():
            flow.net.weight.copy_(-torch.eye(3))
            flow.net.bias.zero_()
        x[2] = 0.0
    z, log_det = flow(x)
    loss = z.pow(2).sum(dim=1).mean() - log_det.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.log.default", "module": "", "step": 3, "kind": "inf", "cause": "log-of-zero", "exit": 3}
