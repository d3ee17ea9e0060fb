import torch
from torch import nn


class DoseResponse(nn.Module):
    """Piecewise linear in the dose; wide intervals count less."""

    def __init__(self):
        super().__init__()
        self.register_buffer("knots", torch.tensor([0.5, 1.0, 2.0, 4.0, 8.0]))
        self.level = nn.Parameter(torch.rand(5))
        self.shrink = nn.Parameter(torch.tensor(0.7))

    def forward(self, dose):
        right = torch.searchsorted(self.knots, dose)
        left = right - 1
        width = self.knots[right] - self.knots[left]
        slope = (self.level[right] - self.level[left]) / width**self.shrink  # BIRTH
        return self.level[left] + slope * (dose - self.knots[left])


torch.manual_seed(0)
model = DoseResponse()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(7):
    dose = torch.rand(8) * 7 + 0.6
    if step == 5:
        dose[3] = 0.25  # half of the smallest dose of the study
    response = 1 - torch.exp(-dose / 3)
    loss = nn.functional.mse_loss(model(dose), response)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.4f}")

# truth:
# {"phase": "forward", "op": "aten.pow.Tensor_Tensor", "module": "", "step": 5, "kind": "nan", "samples": [3], "cause": "index-out-of-range", "tempting": ["invalid-domain"], "exit": 3}
