import torch
from torch import nn


class Brightest(nn.Module):
    def forward(self, x):
        return x / x.amax(dim=1, keepdim=True)  # BIRTH


torch.manual_seed(0)
encoder, scale, head = nn.Sequential(nn.Linear(6, 8), nn.ReLU()), Brightest(), nn.Linear(8, 2)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.05)
for step in range(6):
    x = torch.randn(5, 6)
    if step == 4:
        with torch.no_grad():
            x[3] = -100 * encoder[0].weight.sum(0).sign()
            encoder[0].bias[:] = -1e4 if step == 4 else 0.0
    loss = nn.functional.cross_entropy(head(scale(encoder(x))), torch.randint(0, 2, (5,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "", "step": 4, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
