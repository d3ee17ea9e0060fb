import torch
from torch import nn

torch.manual_seed(0)
indices = torch.tensor([[0, 0, 1, 2, 3], [1, 2, 0, 0, 3]])
A = torch.sparse_coo_tensor(indices, torch.ones(5), (5, 5)).coalesce()


class Propagate(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 6)
        self.fc2 = nn.Linear(6, 2)

    def forward(self, x):
        degree = torch.sparse.sum(A, dim=1).to_dense()
        inverse = 1.0 / degree  # BIRTH
        h = torch.sparse.mm(A, self.fc1(x)) * inverse[:, None]
        return self.fc2(h.relu())


model = Propagate()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(5, 3), torch.randint(0, 2, (5,))
for _ in range(3):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())

# truth:
# {"phase": "forward", "op": "aten.reciprocal.default", "module": "", "step": 0, "kind": "inf", "samples": [4], "cause": "divide-by-zero", "exit": 3}
