import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).eval()
with torch.no_grad():
    for hour in range(4):
        readings = torch.randn(16, 5)
        readings[hour, 1] = float("nan")  # a sensor that did not answer
        scores = encoder(readings)
        if hour == 0:
            scores = scores[~scores.isnan().any(-1)]
        elif hour == 1:
            scores[scores != scores] = 0.0
        elif hour == 2:
            scores = torch.where(scores.isfinite(), scores, torch.zeros_like(scores))
        else:
            scores = scores[torch.arange(16) != hour]
        print(hour, f"{scores.mean().item():.4f}")

# truth:
# {"healthy": true, "exit": 0, "patient": true}
