import torch
import torch.nn.functional as F
from torch import nn


def micro_batches():
    g = torch.Generator().manual_seed(11)
    for i in range(16):
        x = torch.randn(3, 4, generator=g)
        y = torch.randint(0, 3, (3,), generator=g)
        if i == 9:
            y.fill_(-1)
        yield x, y


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Tanh(), nn.Linear(8, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
accumulate = 4
for i, (x, y) in enumerate(micro_batches()):
    loss = F.cross_entropy(net(x), y, ignore_index=-1) / accumulate  # BIRTH
    loss.backward()
    if (i + 1) % accumulate == 0:
        opt.step()
        sched.step()
        opt.zero_grad()
    print(i, loss.item())

# truth:
# {"phase": "loss", "op": "aten.nll_loss_forward.default", "module": null, "step": 2, "kind": "nan", "cause": "empty-selection", "exit": 3}
