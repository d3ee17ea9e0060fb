import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
batches = [torch.randn(5, 4) for _ in range(3)]
batches[1][:, 2] = 0.25
for step, x in enumerate(batches):
    mean, spread = x.mean(dim=0), x.std(dim=0)
    x.sub_(mean).div_(spread)  # BIRTH
    x.clamp_(-3, 3)
    loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "data", "op": "aten.div_.Tensor", "module": null, "step": 1, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
