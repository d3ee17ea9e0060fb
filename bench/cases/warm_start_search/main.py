"""Fit a damped oscillation from many random starts and keep the best; bad starts may blow up and are dropped."""

import math

import torch


def model(parameters, time):
    amplitude, decay, frequency = parameters
    return amplitude * torch.exp(-decay * time) * torch.cos(frequency * time)


def error(parameters, time, measured):
    return (model(parameters, time) - measured).square().mean()


@torch.no_grad()
def screen(starts, time, measured):
    """Errors of all starts at once; a start with a large negative decay overflows to infinity."""
    predicted = starts[:, :1] * torch.exp(-starts[:, 1:2] * time) * torch.cos(starts[:, 2:] * time)
    errors = (predicted - measured).square().mean(dim=1)
    return torch.where(errors.isnan(), math.inf, errors)


def refine(start, time, measured, steps=15):
    parameters = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([parameters], lr=0.05)
    for _ in range(steps):
        loss = error(parameters, time, measured)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), parameters.detach()


torch.manual_seed(0)
time = torch.linspace(0, 6, 60)
measured = model(torch.tensor([1.5, 0.4, 3.0]), time) + 0.02 * torch.randn(60)
starts = torch.randn(64, 3) * torch.tensor([1.0, 12.0, 3.0])
errors = screen(starts, time, measured)
print(f"{int(errors.isinf().sum())} of {len(starts)} starts are hopeless")

best = math.inf
for rank in errors.argsort()[:5].tolist():
    loss, found = refine(starts[rank], time, measured)
    if loss < best:
        best, answer = loss, found
    print(f"start {rank}: {errors[rank].item():.4f} -> {loss:.4f}, best {best:.4f}")
print("amplitude, decay, frequency:", [round(x, 3) for x in answer.tolist()])
