import torch
from torch import nn


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(6, 6) for _ in range(3))

    def forward(self, x, bias):
        scores = self.q(x) @ self.k(x).transpose(1, 2) + bias[:, None, :]
        weights = torch.softmax(scores, dim=-1)  # BIRTH
        weights = torch.nan_to_num(weights)  # cleans the value, not the gradient
        return weights @ self.v(x)


torch.manual_seed(0)
attend = Attend()
optimizer = torch.optim.SGD(attend.parameters(), lr=0.01)
for step in range(3):
    bias = torch.zeros(2, 4)
    bias[0, 3] = float("-inf")
    if step == 2:
        bias[1] = float("-inf")
    loss = attend(torch.randn(2, 4, 6), bias).square().mean()
    print(step, loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": ["forward", "backward"], "op": ["aten._softmax.default", "aten._softmax_backward_data.default"], "module": "", "step": 2, "kind": "nan", "samples": [1], "cause": "fully-masked-row", "exit": 3}
