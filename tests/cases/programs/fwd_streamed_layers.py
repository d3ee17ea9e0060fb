import torch
from torch import nn


class Streamed(nn.Module):
    """The weights stay on the host; each layer is brought in through one staging buffer."""

    def __init__(self, layers=6, dim=4096):
        super().__init__()
        self.host = [torch.randn(dim, dim) * dim**-0.5 for _ in range(layers)]
        self.staging = torch.empty(dim, dim).pin_memory()
        self.device = torch.empty(layers, dim, dim, device="cuda")

    def forward(self, x):
        for i, weight in enumerate(self.host):
            self.staging.copy_(weight)
            self.device[i].copy_(self.staging, non_blocking=True)  # BIRTH
            self.staging.fill_(float("nan"))  # nobody may use it twice
        for i in range(len(self.host)):
            x = torch.tanh(x @ self.device[i])
        return x


torch.manual_seed(0)
model = Streamed().eval()
with torch.no_grad():
    for request in range(3):
        x = torch.randn(2048, 4096, device="cuda")
        busy = x @ x.T  # what came before is still running
        for _ in range(200):
            busy = torch.sin(busy @ busy)
        print(request, model(x).abs().mean().item())

# truth:
# {"phase": "forward", "op": [null, "aten.copy_.default"], "module": "", "step": 0, "kind": "nan", "cause": "transfer-race", "tempting": ["uninitialised-memory", "bad-weights"], "needs": "cuda", "exit": 3}
