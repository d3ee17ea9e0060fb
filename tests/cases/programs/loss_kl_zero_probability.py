import torch
from torch import nn

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 4), nn.Softmax(dim=-1))
teacher_probs = torch.rand(3, 4).softmax(-1)
teacher_probs[1] = torch.tensor([0.0, 0.5, 0.5, 0.0])  # a hard teacher


def kl(p, q):
    ratio = (p / q).log()  # BIRTH
    return (p * ratio).sum(-1).mean()


optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
x = torch.randn(3, 6)
for epoch in range(2):
    optimizer.zero_grad()
    loss = kl(teacher_probs, student(x))
    loss.backward()
    optimizer.step()
print(loss.item())

# truth:
# {"phase": "loss", "op": "aten.log.default", "module": null, "step": 0, "kind": "inf", "samples": [1], "cause": "log-of-zero", "tempting": ["infeasible-target"], "exit": 3}
