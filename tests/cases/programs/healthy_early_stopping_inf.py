import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(32, 4)
y = x @ torch.randn(4, 1)
model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
best = torch.tensor(float("inf"))
patience = 0
for epoch in range(12):
    model.train()
    loss = nn.functional.mse_loss(model(x[:24]), y[:24])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        held_out = nn.functional.mse_loss(model(x[24:]), y[24:])
    plateau.step(held_out)
    patience = 0 if held_out < best else patience + 1
    best = torch.minimum(best, held_out)
    if patience > 3:
        break
print(epoch, f"{best.item():.3f}")

# truth:
# {"healthy": true, "exit": 0}
