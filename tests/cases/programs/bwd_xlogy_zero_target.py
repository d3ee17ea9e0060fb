import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())


def divergence(target, rate):
    return (rate - torch.special.xlogy(target, rate)).mean()  # BIRTH


with torch.no_grad():
    model[0].bias.fill_(3.0)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for i in range(3):
    counts = torch.randint(1, 5, (2, 4)).float()
    rate = model(torch.rand(2, 3)) ** 2
    if i == 1:
        counts[0, 1] = 0
        rate = rate * torch.tensor([[1.0, 0, 1, 1], [1, 1, 1, 1]])
    loss = divergence(counts, rate)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, loss.item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": null, "step": 1, "kind": "nan", "samples": [0], "cause": "singular-gradient", "exit": 3}
