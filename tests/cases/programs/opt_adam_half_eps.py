import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 2).half()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)  # eps=1e-8 is 0 in float16
x = torch.randn(4, 6).half()
x[:, 3] = 0  # this weight never gets a gradient
y = torch.randn(4, 2).half()
for step in range(2):
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # BIRTH
    print(step, loss.item())

# truth:
# {"phase": "optimizer", "op": "aten.addcdiv_.default", "module": null, "step": 0, "kind": "nan", "cause": "half-underflow", "tempting": ["bad-hyperparameter"], "exit": 3}
