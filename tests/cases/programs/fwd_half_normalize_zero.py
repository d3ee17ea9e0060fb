import torch
import torch.nn.functional as F
from torch import nn


class Retriever(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(6, 4, bias=False)
        self.document = nn.Linear(6, 4, bias=False)

    def forward(self, q, d):
        q = F.normalize(self.query(q), dim=-1)
        d = F.normalize(self.document(d), dim=-1)  # BIRTH
        return q @ d.T


torch.manual_seed(0)
retriever = Retriever().half()
optimizer = torch.optim.SGD(retriever.parameters(), lr=1e-2)
for step in range(3):
    q, d = torch.randn(3, 6).half(), torch.randn(3, 6).half()
    if step == 1:
        d[2] = 0  # an empty document; eps=1e-12 is 0 in float16
    scores = retriever(q, d).float()
    loss = F.cross_entropy(scores, torch.arange(3))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "", "step": 1, "kind": "nan", "samples": [2], "cause": "half-underflow", "tempting": ["divide-by-zero"], "exit": 3}
