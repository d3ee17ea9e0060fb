import torch
from torch import nn


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, ids):
        return self.head(self.table(ids))


torch.manual_seed(0)
words = Words()
words.table.weight.data[7] = float("nan")  # BIRTH
optimizer = torch.optim.SGD(words.parameters(), lr=0.1)
for step in range(6):
    ids = torch.tensor([step % 4, (step + 1) % 4, 7 if step == 4 else 2])
    loss = nn.functional.cross_entropy(words(ids), torch.tensor([0, 1, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "weights", "op": [null, "aten.fill_.Tensor", "aten.fill_.Scalar", "aten.copy_.default"], "module": [null, "", "table"], "step": [-1, 0, 4], "kind": "nan", "cause": "bad-weights", "exit": 3}
