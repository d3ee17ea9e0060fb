import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 4), nn.ELU(), nn.Linear(4, 1))
optimizer = torch.optim.Adam(net.parameters())


def decorrelate(values, groups):
    penalty = 0.0
    for group in groups.unique():
        member = values[groups == group]
        penalty = penalty + member.std()  # BIRTH
    return penalty


for step in range(4):
    x = torch.randn(6, 2)
    groups = torch.tensor([0, 0, 0, 1, 1, 1 if step < 3 else 2])
    loss = decorrelate(net(x).squeeze(1), groups)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.std.correction", "module": null, "step": 3, "kind": "nan", "cause": "empty-selection", "also": ["divide-by-zero"], "exit": 3}
