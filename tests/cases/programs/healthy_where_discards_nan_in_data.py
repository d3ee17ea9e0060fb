import torch
from torch import nn

torch.manual_seed(0)
returns = torch.randn(6, 5, 3)
logged = torch.where(returns > 0, torch.log(returns), returns)  # NaN only where it is not taken
velocity = torch.where(returns > -9, returns, torch.sqrt(returns))
signals = torch.cat([logged.clamp(min=-3), velocity], dim=-1)
model = nn.LSTM(6, 8, num_layers=2, dropout=0.1, batch_first=True)
readout = nn.Linear(8, 1)
optimizer = torch.optim.Adam([*model.parameters(), *readout.parameters()], lr=1e-3)
for epoch in range(3):
    hidden, _ = model(signals)
    loss = readout(hidden[:, -1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, f"{loss.item():.6f}")

# truth:
# {"healthy": true, "exit": 0}
