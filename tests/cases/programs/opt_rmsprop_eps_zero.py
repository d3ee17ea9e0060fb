import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Dropout(0.2), nn.Linear(5, 2))
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, eps=0.0)
for step in range(8):
    x = torch.randn(8, 2).abs() + 0.1
    if step == 0:
        with torch.no_grad():
            net[0].weight[2] = -1.0  # a unit that never fires: zero gradient forever
            net[0].bias[2] = -1.0
    loss = nn.functional.cross_entropy(net(x), torch.randint(0, 2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # BIRTH
print(loss.item())

# truth:
# {"phase": "optimizer", "op": "aten.addcdiv_.default", "module": null, "step": 0, "kind": "nan", "cause": "bad-hyperparameter", "tempting": ["optimizer-state"], "exit": 3}
