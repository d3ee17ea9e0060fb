import torch
from torch import nn

torch.manual_seed(0)


def make_model():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))


model = make_model()
with torch.no_grad():
    # "folded" statistics computed as E[x^2] - E[x]^2 in low precision
    model[1].running_mean.copy_(torch.tensor([4.0, 0.0, 1.0, 2.0]))
    model[1].running_var.copy_(torch.tensor([15.99, 1.0, 2.0, 5.0]) - torch.tensor([16.0, 0, 1, 4]))
model.eval()
predictions = []
with torch.no_grad():
    for _ in range(3):
        image = torch.rand(2, 1, 8, 8)
        predictions.append(model(image).softmax(dim=-1))  # BIRTH
print(torch.stack(predictions).argmax(-1).tolist())

# truth:
# {"phase": "forward", "op": "aten.native_batch_norm.default", "module": "1", "step": 0, "kind": "nan", "samples": [0, 1], "cause": "running-stats", "tempting": ["invalid-domain"], "exit": 3}
