import torch
from torch import nn


class Recommender(nn.Module):
    def __init__(self, items=10, dim=6):
        super().__init__()
        self.user = nn.Linear(4, dim)
        self.items = nn.Parameter(torch.randn(items, dim) * 0.3)

    def forward(self, x):
        return self.user(x) @ self.items.T


def soft_target_loss(scores, bought, sold_out):
    scores = scores + sold_out * -1e5  # BIRTH
    log_p = scores - scores.exp().sum(-1, keepdim=True).log()
    return -(bought * log_p).sum(-1).mean()


torch.manual_seed(0)
model = Recommender().half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    bought = torch.rand(3, 10).softmax(-1)
    sold_out = torch.zeros(3, 10)
    if step >= 3:
        sold_out[:, 7] = 1
        bought[:, 7] = 0
    loss = soft_target_loss(model(torch.randn(3, 4).half()), bought.half(), sold_out.half()).float()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.mul.Tensor", "module": null, "step": 3, "kind": "inf", "samples": [0, 1, 2], "cause": "mask-overflow", "tempting": ["half-overflow", "inf-arithmetic"], "exit": 3}
