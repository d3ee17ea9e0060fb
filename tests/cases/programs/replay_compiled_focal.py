import torch
from torch import nn

torch.manual_seed(0)


@torch.compile(backend="aot_eager")
def focal(p, y, gamma: float = 2.0):
    pt = torch.where(y > 0.5, p, 1 - p)
    nll = -torch.log(pt)  # BIRTH
    return ((1 - pt) ** gamma * nll).mean()


net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())
opt = torch.optim.Adam(net.parameters(), 1e-3)
for it in range(6):
    x = torch.randn(8, 4)
    y = (x.sum(1) > 0).float()
    if it == 4:
        x[5] = 4000 * torch.sign(x[5])
        with torch.no_grad():
            y[5] = 1.0 - (net(x)[5, 0] > 0.5).float()
    loss = focal(net(x).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(it, loss.item())

# truth:
# {"phase": "loss", "op": "aten.log.default", "module": null, "step": 4, "kind": "inf", "samples": [5], "cause": "log-of-zero", "exit": 3}
