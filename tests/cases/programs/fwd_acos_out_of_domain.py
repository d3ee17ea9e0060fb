import torch
import torch.nn as nn


class AngularHead(nn.Module):
    def __init__(self, dim, classes, margin=0.2):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, dim))
        self.margin = margin

    def forward(self, x):
        w = nn.functional.normalize(self.weight, dim=1)
        cosine = nn.functional.normalize(x, dim=1) @ w.t()
        cosine = cosine * 1.05  # label smoothing of the angle, somebody thought
        theta = torch.acos(cosine)  # BIRTH
        return -10 * (theta + self.margin)


torch.manual_seed(0)
head = AngularHead(4, 3)
opt = torch.optim.SGD(head.parameters(), lr=0.01)
for step in range(5):
    x = torch.randn(4, 4)
    x = x - 0.9 * x @ torch.linalg.pinv(head.weight.detach()) @ head.weight.detach()
    if step == 3:
        x[2] = head.weight.detach()[1] * 3  # exactly on a class centre
    loss = nn.functional.cross_entropy(head(x), torch.tensor([0, 1, 1, 2]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"step {step} loss {loss:.4f}")

# truth:
# {"phase": "forward", "op": "aten.acos.default", "module": "", "step": 3, "kind": "nan", "samples": [2], "cause": "invalid-domain", "exit": 3}
