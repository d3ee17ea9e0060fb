import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim + 1, 32), nn.SiLU(), nn.Linear(32, dim))

    def forward(self, x, t):
        return self.net(torch.cat([x, t.expand(len(x), 1)], dim=1))


def alpha_sigma(t):
    return torch.cos(t * torch.pi / 2), torch.sin(t * torch.pi / 2)


def half_log_snr(t):
    """Infinite at t = 0, where no noise is left."""
    alpha, sigma = alpha_sigma(t)
    return alpha.log() - sigma.log()


@torch.no_grad()
def sample(model, steps):
    times = torch.linspace(0.98, 0.0, steps + 1)
    x = torch.randn(4, 6)
    for now, after in zip(times[:-1].tolist(), times[1:].tolist(), strict=True):
        now, after = torch.tensor([now]), torch.tensor([after])
        (_, sigma_now), (alpha, sigma) = alpha_sigma(now), alpha_sigma(after)
        h = half_log_snr(after) - half_log_snr(now)
        x = sigma / sigma_now * x - alpha * torch.expm1(-h) * model(x, now)
    return x


def train(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        clean, t = torch.randn(16, 6).tanh(), torch.rand(1)
        alpha, sigma = alpha_sigma(t)
        noisy = alpha * clean + sigma * torch.randn_like(clean)
        loss = (model(noisy, t) - clean).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"trained, loss {loss.item():.4f}")


torch.manual_seed(0)
model = Denoiser()
train(model, 20)
for steps in (2, 5, 8):
    print(steps, "steps, norm", round(sample(model, steps).norm().item(), 4))
