import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential()
model.add_module("fc", nn.Linear(5, 8))
model.add_module("norm", nn.LayerNorm(8, eps=0.0))
model.add_module("act", nn.SiLU())
model.add_module("out", nn.Linear(8, 1))
with torch.no_grad():
    model.fc.bias.fill_(0.25)


def train_step(x):
    optimizer.zero_grad()
    loss = model(x).mean()  # BIRTH
    loss.backward()
    optimizer.step()
    return loss.item()


optimizer = torch.optim.SGD(model[2:].parameters(), lr=1e-2)
optimizer.add_param_group({"params": model.fc.weight})
losses = [train_step(torch.randn(3, 5)) for _ in range(3)]
losses.append(train_step(torch.tensor([[1.0] * 5, [0.0] * 5, [2.0] * 5])))
print(losses)

# truth:
# {"phase": "forward", "op": "aten.native_layer_norm.default", "module": "norm", "step": 3, "kind": "nan", "samples": [1], "cause": "bad-hyperparameter", "also": ["divide-by-zero"], "exit": 3}
