import torch
from torch import nn


class Retrieval(nn.Module):
    def __init__(self, sharpness=2.0):
        super().__init__()
        self.query = nn.Linear(4, 4, bias=False)
        self.sharpness = sharpness

    def forward(self, q, memory, missing):
        scores = torch.einsum("bd,bnd->bn", self.query(q), memory)
        scores = scores.masked_fill(missing, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores * self.sharpness, dim=-1)  # BIRTH
        return torch.einsum("bn,bnd->bd", weights, memory)


torch.manual_seed(0)
model = Retrieval().eval()
with torch.inference_mode():
    for request in range(5):
        memory, missing = torch.randn(3, 6, 4), torch.zeros(3, 6, dtype=torch.bool)
        missing[:, 4:] = True
        if request == 4:
            missing[2] = True  # a new user: nothing remembered yet
        print(request, model(torch.randn(3, 4), memory, missing).norm().item())

# truth:
# {"phase": "forward", "op": "aten.mul.Tensor", "module": "", "step": 4, "kind": "inf", "cause": "mask-overflow", "tempting": ["fully-masked-row", "overflow"], "exit": 3}
