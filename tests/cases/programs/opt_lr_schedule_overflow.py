import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
# an exponential "finder" that nobody stopped
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1.0 if k < 4 else float("inf"))
for step in range(6):
    x = torch.randn(2, 3)
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # BIRTH
    scheduler.step()
    print(step, loss.item(), scheduler.get_last_lr())

# truth:
# {"phase": "optimizer", "op": "aten.add_.Tensor", "module": null, "step": 4, "kind": "inf", "cause": "bad-hyperparameter", "exit": 3}
