import torch
from torch import nn

torch.manual_seed(0)


class SpanScorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(4, 1)

    def forward(self, x):
        p = torch.sigmoid(self.score(x))
        p = p.clamp(1e-6, 1 - 1e-6)  # 1 - 1e-6 is 1 in bfloat16
        return torch.log(p), torch.log(1 - p)  # BIRTH


model = SpanScorer().to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    x = torch.randn(3, 4, dtype=torch.bfloat16)
    if step == 1:
        x[0] = 50 * model.score.weight.detach()[0].sign()
    y = torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.bfloat16)
    log_p, log_q = model(x)
    loss = -(y * log_p + (1 - y) * log_q).float().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.log.default", "module": "", "step": 1, "kind": "inf", "samples": [0], "cause": "half-underflow", "also": ["log-of-zero"], "exit": 3}
