import torch
from torch import nn


class Buckets(nn.Module):
    """Numbers become tokens: equal parts between the smallest and the largest of a row."""

    def __init__(self, parts=10, dim=6):
        super().__init__()
        self.parts = parts
        self.table = nn.Embedding(parts, dim)

    def forward(self, x):
        low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
        place = (x - low) / (high - low)  # BIRTH
        return self.table((place * (self.parts - 1)).long())


torch.manual_seed(0)
model = nn.Sequential(Buckets(), nn.Flatten(), nn.Linear(24, 1)).eval()
with torch.no_grad():
    for call in range(4):
        prices = torch.rand(3, 4) * 100
        if call == 2:
            prices[0] = 9.99
        print(call, [round(v, 3) for v in model(prices).flatten().tolist()])

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "0", "step": 2, "kind": "nan", "samples": [0], "cause": "divide-by-zero", "tempting": ["index-out-of-range"], "exit": 3}
