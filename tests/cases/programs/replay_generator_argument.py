import torch
from torch import nn

torch.manual_seed(0)
dice = torch.Generator().manual_seed(7)
net = nn.Linear(4, 6)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(60):
    x = torch.randn(3, 4)
    p = torch.sigmoid(net(x))
    keep = torch.bernoulli(p, generator=dice)
    keep = keep + p - p.detach()  # straight through
    loss = (p / keep.sum(dim=1, keepdim=True).relu()).mean()  # BIRTH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.div.Tensor", "module": null, "step": 37, "kind": "inf", "cause": "divide-by-zero", "also": ["empty-selection"], "exit": 3}
