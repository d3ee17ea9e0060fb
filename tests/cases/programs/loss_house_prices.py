import torch
from torch import nn

torch.manual_seed(0)
area = torch.rand(64, 1) * 30 + 20
rooms = torch.randint(1, 6, (64, 1)).float()
x = torch.cat([area, rooms], dim=1)
price = 3 * area + 10 * rooms + torch.randn(64, 1)
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
history = []
for epoch in range(40):
    prediction = model(x)
    loss = (prediction - price).pow(2).mean()  # BIRTH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
    if epoch % 5 == 0:
        print(epoch, f"{history[-1]:.4g}")

# truth:
# {"phase": "loss", "op": "aten.mean.default", "module": null, "step": 10, "kind": "inf", "cause": "divergence", "also": ["overflow"], "tempting": ["bad-input"], "exit": 3}
