import torch
from torch import nn

torch.use_deterministic_algorithms(True)


class Pages(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("rows", torch.empty(8, dim))  # BIRTH
        self.count = 0

    def forward(self, row):
        self.rows[self.count] = row
        self.count += 1
        page = self.rows[: -(-self.count // 4) * 4]
        return torch.softmax(torch.arange(4.0).repeat(len(page) // 4), 0) @ page


class Reader(nn.Module):
    def __init__(self, dim=3):
        super().__init__()
        self.first = nn.Linear(dim, dim)
        self.pages = Pages(dim)
        for _ in range(3):
            self.pages.rows[self.pages.count] = 1.0
            self.pages.count += 1

    def forward(self, x):
        return self.pages(self.first(x))


torch.manual_seed(0)
reader = Reader().eval()
with torch.no_grad():
    for token in range(3):
        print(token, reader(torch.randn(3)).sum().item())

# truth:
# {"phase": ["weights", "forward"], "op": "aten.empty.memory_format", "module": ["pages", "", null], "step": [0, 1], "kind": "nan", "cause": "uninitialised-memory", "exit": 3}
