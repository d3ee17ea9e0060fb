import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 8), nn.PReLU(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(6):
    x, y = torch.randn(9, 5), torch.randint(0, 3, (9,))
    clean = {name: p.detach().clone() for name, p in model.named_parameters()}
    if step >= 2:
        for p in model.parameters():
            p.data += 0.01 * p.data.var() * torch.randn_like(p)  # BIRTH
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    for name, p in model.named_parameters():
        p.data.copy_(clean[name])
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "weights", "op": "aten.var.correction", "module": null, "step": 2, "kind": "nan", "cause": "empty-selection", "exit": 3}
