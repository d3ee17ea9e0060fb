import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(0)
rainfall = rng.gamma(2.0, 3.0, (96, 12)).astype("float32")
rainfall[41, 7] = np.nan  # the gauge was frozen
flow = rainfall.sum(1, keepdims=True) * 0.1
torch.manual_seed(0)
data = TensorDataset(torch.from_numpy(rainfall), torch.from_numpy(flow))
loader = DataLoader(data, batch_size=16, pin_memory=True)
model = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
for step, (x, y) in enumerate(loader):  # BIRTH
    x = x.cuda(non_blocking=True)
    y = y.cuda(non_blocking=True)
    loss = nn.functional.smooth_l1_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.detach())

# truth:
# {"phase": "data", "op": null, "module": null, "step": 2, "kind": "nan", "samples": [9], "cause": "bad-input", "tempting": ["transfer-race"], "needs": "cuda", "exit": 3}
