import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 5))


def nll(logits, target):
    p = torch.softmax(logits, dim=1)
    log_p = torch.log(p)  # BIRTH
    return -log_p[torch.arange(len(target)), target].mean()


optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(7):
    x = torch.randn(4, 4)
    y = torch.randint(0, 5, (4,))
    if step == 4:
        x[1] *= 5000
        y[1] = model(x[1]).argmin()
    loss = nll(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step}: {loss.item():.3f}")

# truth:
# {"phase": "loss", "op": "aten.log.default", "module": null, "step": 4, "kind": "inf", "samples": [1], "cause": "log-of-zero", "exit": 3}
