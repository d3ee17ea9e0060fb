import torch
from torch import nn


class NegativeBinomial(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 2)

    def forward(self, x):
        out = self.lin(x)
        return nn.functional.softplus(out[:, 0]), torch.relu(out[:, 1])


def log_likelihood(mu, r, count):
    norm = torch.lgamma(count + r) - torch.lgamma(r)  # BIRTH
    return norm + count * torch.log(mu / (mu + r + 1e-6))


torch.manual_seed(0)
model = NegativeBinomial()
with torch.no_grad():
    model.lin.bias[1] = 5.0
optimizer = torch.optim.Adamax(model.parameters(), lr=1e-3)
for i in range(3):
    if i == 2:
        with torch.no_grad():
            model.lin.bias[1] = -20.0
    x, count = torch.randn(3, 4), torch.tensor([3.0, 1.0, 2.0])
    loss = -log_likelihood(*model(x), count).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, loss.item())

# truth:
# {"phase": "loss", "op": "aten.lgamma.default", "module": null, "step": 2, "kind": "inf", "samples": [0, 1, 2], "cause": "invalid-domain", "also": ["log-of-zero"], "exit": 3}
