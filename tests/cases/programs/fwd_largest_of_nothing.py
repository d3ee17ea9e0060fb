import torch
from torch import nn


class SetScore(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(4, 1)

    def forward(self, x, there):
        scores = self.score(x).squeeze(-1).masked_fill(~there, float("-inf"))
        return scores.amax(1)  # BIRTH


torch.manual_seed(0)
model = SetScore()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(6):
    there = torch.rand(5, 4) > 0.4
    there[:, 0] = True
    if step == 4:
        there[2] = False
    loss = nn.functional.mse_loss(model(torch.randn(5, 4, 4), there), torch.zeros(5))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.amax.default", "module": "", "step": 4, "kind": "inf", "samples": [2], "cause": "fully-masked-row", "also": ["empty-selection"], "exit": 3}
