import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
D = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.9))
bce = nn.BCEWithLogitsLoss()
record = torch.full((5,), float("nan"))  # filled as we go, plotted later
for step in range(5):
    real = torch.randn(6, 2) * 0.1 + 1
    fake = G(torch.randn(6, 2))
    loss_d = bce(D(real), torch.ones(6, 1)) + bce(D(fake.detach()), torch.zeros(6, 1))
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
    loss_g = bce(D(fake), torch.ones(6, 1))
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    record[step] = loss_d.item() + loss_g.item()
    print(step, f"{record.nanmean().item():.4f}")

# truth:
# {"healthy": true, "exit": 0}
