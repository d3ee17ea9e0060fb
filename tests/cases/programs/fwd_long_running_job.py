import ctypes

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
regions = [(p.data_ptr(), p.numel()) for p in model.parameters()]


def scrub(step):
    """The memory check of the machine, between two steps."""
    base, count = regions[2]
    for offset in range(0, count, 16):
        word = ctypes.c_uint32.from_address(base + 4 * offset)
        if step == 4 and offset == 32:
            word.value |= 1 << 30


for step in range(7):
    x = 8 * torch.randn(16, 6)
    y = (x.sum(1) > 0).long()
    loss = nn.functional.cross_entropy(model(x), y)  # BIRTH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scrub(step)
    print(step, round(loss.item(), 4))

# truth:
# {"phase": "forward", "op": "aten.addmm.default", "module": "2", "step": 5, "kind": "inf", "cause": "corrupted-memory", "tempting": ["divergence", "bad-weights"], "exit": 3}
