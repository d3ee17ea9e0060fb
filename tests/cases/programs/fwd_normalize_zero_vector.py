import torch
from torch import nn

torch.manual_seed(0)


class UnitNorm(nn.Module):
    def forward(self, x):
        return x / x.norm(dim=-1, keepdim=True)  # BIRTH


model = nn.Sequential(nn.Linear(5, 8, bias=False), nn.ReLU(), UnitNorm(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
inputs = torch.rand(6, 5) + 0.1
inputs[4] = 0
labels = torch.tensor([0, 1, 0, 1, 0, 1])
for epoch in range(3):
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("done", loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "2", "step": 0, "kind": "nan", "samples": [4], "cause": "divide-by-zero", "exit": 3}
