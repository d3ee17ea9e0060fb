import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        ms = x.pow(2).mean(-1, keepdim=True)  # BIRTH
        rms = (ms + self.eps).sqrt()
        return self.weight * x / rms, rms


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = RMSNorm(8)
        self.lin = nn.Linear(8, 8)

    def forward(self, x):
        y, scale = self.norm(x)
        return self.lin(y) * scale  # give the magnitude back


torch.manual_seed(0)
model = Model().to(torch.float16)
x = torch.randn(3, 8).half()
with torch.no_grad():
    print(model(x).abs().max().item() < 100)
    x[1, 5] = 300.0
    print(model(x).abs().max().item())

# truth:
# {"phase": "forward", "op": "aten.pow.Tensor_Scalar", "module": "norm", "step": 1, "kind": "inf", "samples": [1], "cause": "half-overflow", "exit": 3}
