import torch
from torch import nn


def ratios(sales, visits):
    table = torch.full_like(sales, float("inf"))  # BIRTH
    seen = visits > 0
    table[seen] = sales[seen] / visits[seen]
    return table


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)).eval()
with torch.no_grad():
    model[2].weight.abs_()
    for day in range(4):
        sales, visits = torch.rand(3, 4) * 9, torch.randint(1, 5, (3, 4))
        if day == 2:
            visits[1, 1] = 0
        print(day, model(ratios(sales, visits)).flatten().tolist())

# truth:
# {"phase": "data", "op": [null, "aten.full_like.default"], "module": null, "step": 2, "kind": "inf", "samples": [1], "cause": "bad-input", "exit": 3}
