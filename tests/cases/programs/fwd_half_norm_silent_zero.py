import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        mean_square = x.pow(2).mean(-1, keepdim=True)  # BIRTH
        return self.weight * x * torch.rsqrt(mean_square + 1e-6)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), RMSNorm(8), nn.Linear(8, 2)).half().eval()
with torch.no_grad():
    for call in range(4):
        x = torch.randn(3, 6)
        if call == 2:
            x[1] *= 3000  # the norm of this row silently becomes zero
        print(model(x.half()).float().abs().max().item() < 1e4)

# truth:
# {"phase": "forward", "op": "aten.pow.Tensor_Scalar", "module": "1", "step": 2, "kind": "inf", "samples": [1], "cause": "half-overflow", "exit": 3}
