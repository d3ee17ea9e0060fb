import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)).half()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
for step in range(3):
    x = torch.randn(3, 4).half()
    x[:, 0] = 0
    loss = model(x).float().pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # BIRTH
    print(step, loss.item())

# truth:
# {"phase": "optimizer", "op": "aten._foreach_addcdiv_.ScalarList", "module": null, "step": 0, "kind": "nan", "cause": "half-underflow", "tempting": ["bad-hyperparameter"], "exit": 3}
