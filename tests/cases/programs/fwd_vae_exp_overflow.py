import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 16), nn.ReLU())
        self.mu = nn.Linear(16, 4)
        self.logvar = nn.Linear(16, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 12))

    def sample(self, mu, logvar):
        std = logvar.exp()  # BIRTH
        return mu + std * torch.randn_like(mu)

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.mu(h), self.logvar(h)
        return self.decoder(self.sample(mu, logvar)), mu, logvar


torch.manual_seed(0)
vae = VAE()
optimizer = torch.optim.Adam(vae.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)
for step in range(9):
    x = torch.rand(6, 12)
    if step == 7:
        x[0] = 60_000.0  # raw sensor counts, not scaled to 0..1
    recon, mu, logvar = vae(x)
    kl = 0.5 * (mu.clamp(-9, 9) ** 2 - logvar.clamp(-9, 9)).mean()
    loss = F.mse_loss(recon, x) + kl
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(step, f"{loss.item():.5f}")

# truth:
# {"phase": "forward", "op": "aten.exp.default", "module": "", "step": 7, "kind": "inf", "samples": [0], "cause": "overflow", "also": ["bad-input"], "exit": 3}
