import torch
from torch import nn

torch.manual_seed(0)


class MaskedMean(nn.Module):
    """The mean over a random part of its input, drawn from a generator of its own."""

    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(1)
        self.out = nn.Linear(3, 1)

    def forward(self, x):
        keep = (torch.rand(x.shape[:2], generator=self.generator) < 0.5).unsqueeze(-1)
        pooled = (x * keep).sum(dim=1) / keep.sum(dim=1)  # BIRTH
        return self.out(pooled)


net = MaskedMean()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(60):
    loss = net(torch.randn(2, 5, 3)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "", "step": 39, "kind": "nan", "cause": "empty-selection", "also": ["divide-by-zero"], "exit": 3}
