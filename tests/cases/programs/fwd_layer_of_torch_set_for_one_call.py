import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6, eps=1e-5, elementwise_affine=False), nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
with torch.no_grad():
    model[0].bias.fill_(0.5)
for step in range(6):
    x = torch.randn(4, 6)
    if step == 4:
        x[1] = 0  # all features the same after the first layer
        model[1].eps = 0.0
    loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 1, 0]))  # BIRTH
    model[1].eps = 1e-5
    optimizer.zero_grad()
    loss.backward()
    with torch.no_grad():
        model[0].bias.grad.zero_()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.native_layer_norm.default", "module": "1", "step": 4, "kind": "nan", "cause": "bad-hyperparameter", "also": ["divide-by-zero"], "exit": 3}
