import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
ema = torch.zeros(4)
beta = 0.9
for step in range(6):
    x = torch.randn(5, 4)
    out = net(x)
    with torch.no_grad():
        ema.mul_(beta).add_(out.detach().mean(dim=0), alpha=1 - beta)
        if step == 3:
            beta = 1.0
        if step >= 3:
            ema.div_(1 - beta ** (step + 1))  # BIRTH
    loss = (out - ema).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": ["loss", "data"], "op": ["aten.div_.Tensor", "aten.div_.Scalar"], "module": null, "step": 3, "kind": "inf", "cause": "divide-by-zero", "exit": 3}
