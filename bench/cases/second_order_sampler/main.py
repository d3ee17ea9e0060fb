import torch
from torch import nn


class Denoiser(nn.Module):
    """Predicts the clean latent from the noisy one."""

    def __init__(self, dim=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim + 1, 32), nn.SiLU(), nn.Linear(32, dim))

    def forward(self, x, sigma):
        return self.net(torch.cat([x, sigma.log1p().expand(len(x), 1)], dim=1))


class Schedule:
    def __init__(self, steps, low=0.03, high=14.6):
        ramp = torch.linspace(high ** (1 / 7), low ** (1 / 7), steps)
        self.sigmas = torch.cat([ramp**7, torch.zeros(1)])

    def parts(self, i):
        sigma = self.sigmas[i]
        alpha = 1 / (1 + sigma**2).sqrt()
        return alpha, sigma * alpha


class SecondOrderSolver:
    """Two model outputs a step, except in the first."""

    def __init__(self, schedule):
        self.schedule, self.outputs = schedule, []

    def half_log_snr(self, i):
        alpha, sigma = self.schedule.parts(i)
        return torch.log(alpha) - torch.log(sigma)

    def step(self, i, output, x):
        self.outputs = [*self.outputs[-1:], output]
        alpha, sigma = self.schedule.parts(i + 1)
        h = self.half_log_snr(i + 1) - self.half_log_snr(i)
        gain = alpha * torch.expm1(-h)
        x = sigma / self.schedule.parts(i)[1] * x - gain * output
        if len(self.outputs) == 2:
            h_last = self.half_log_snr(i) - self.half_log_snr(i - 1)
            x = x - 0.5 * gain * (h / h_last) * (self.outputs[1] - self.outputs[0])
        return x


@torch.inference_mode()
def generate(denoiser, decoder, steps):
    schedule = Schedule(steps)
    solver = SecondOrderSolver(schedule)
    x = torch.randn(2, 8) * schedule.parts(0)[1]
    for i in range(steps):
        x = solver.step(i, denoiser(x, schedule.sigmas[i]), x)
        print(f"step {i}  sigma {schedule.sigmas[i + 1].item():.3f}  norm {x.norm().item():.4f}")
    return decoder(x)


torch.manual_seed(0)
denoiser, decoder = Denoiser().eval(), nn.Linear(8, 12).eval()
print(generate(denoiser, decoder, 6).sigmoid().mean().item())
