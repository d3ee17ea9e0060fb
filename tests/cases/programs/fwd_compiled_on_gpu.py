import torch
from torch import nn


class Pose(nn.Module):
    """Angles between neighbouring joints."""

    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(32, 64)
        self.turn = nn.Linear(64, 64)

    def forward(self, x):
        a, b = self.lift(x), self.turn(torch.tanh(self.lift(x)))
        length = a.square().sum(-1) * b.square().sum(-1)
        cosine = (a * b).sum(-1) / length.sqrt()  # BIRTH
        return cosine


torch.manual_seed(0)
model = Pose().cuda()
with torch.no_grad():
    model.lift.bias.zero_()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(8):
    x = torch.randn(64, 32, device="cuda")
    if step == 5:
        x[17] = 0  # nobody in the picture
        with torch.no_grad():
            model.lift.bias.zero_()
    loss = (compiled(x) - 0.5).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "", "step": 5, "kind": "nan", "samples": [17], "cause": "divide-by-zero", "tempting": ["compiler-fault", "bad-input"], "needs": "cuda", "exit": 3}
