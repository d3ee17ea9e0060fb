import torch
from torch import nn


class RangeObserver(nn.Module):
    """Per-channel absolute maximum, averaged over the calibration batches; then rounds to 8 bits."""

    def __init__(self, channels):
        super().__init__()
        self.register_buffer("peak", torch.zeros(channels))
        self.calibrating = True

    def forward(self, x):
        if self.calibrating:
            self.peak.lerp_(x.abs().amax(dim=0), 0.2)
            return x
        step = self.peak / 127
        return (x / step).round().clamp(-127, 127) * step  # BIRTH


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), RangeObserver(6), nn.Linear(6, 2)).eval()
with torch.no_grad():
    model[0].weight[3].zero_()
    model[0].bias[3] = -0.5
    for _ in range(4):
        model(torch.randn(16, 4))
    model[2].calibrating = False
    for request in range(3):
        print(request, model(torch.randn(2, 4)).argmax(-1).tolist())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "2", "step": 4, "kind": "nan", "samples": [0, 1], "cause": "running-stats", "also": ["divide-by-zero"], "exit": 3}
