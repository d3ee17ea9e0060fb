import torch
from torch import nn

torch.manual_seed(0)


class Whitening(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))

    def forward(self, x):
        u, s, vh = torch.linalg.svd(self.weight)  # BIRTH
        return x @ (u * s.rsqrt()) @ vh


model = Whitening()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = (model(torch.randn(4, 3)) - 1).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": "", "step": 0, "kind": "nan", "cause": "singular-gradient", "exit": 3}
