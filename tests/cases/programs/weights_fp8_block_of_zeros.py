import torch
from torch import nn

FP8 = torch.float8_e4m3fn


def packed(weight):
    rows = weight.view(-1, 4, weight.shape[1])
    scale = rows.abs().amax((1, 2), keepdim=True) / torch.finfo(FP8).max
    return (rows / scale).to(FP8), scale  # BIRTH


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 2)).eval()
with torch.no_grad():
    model[0].weight[12:] = 0.0  # rows that were added to fill up the table
    values, scale = packed(model[0].weight)
    model[0].weight.copy_((values.float() * scale).view(16, 8))
    for request in range(3):
        ids = torch.randint(0, 12 if request < 2 else 16, (6, 4))
        print(request, model(ids).sum().item())

# truth:
# {"phase": "weights", "op": "aten.div.Tensor", "module": null, "step": [0, 2], "kind": "nan", "cause": "divide-by-zero", "also": ["bad-weights"], "exit": 3}
