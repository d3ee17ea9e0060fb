import torch
from torch import nn


def average(states):
    total = {k: torch.zeros_like(v) for k, v in model.state_dict().items()}
    for state in states:
        for k, v in state.items():
            total[k] += v
    count = torch.tensor(float(len(states)))
    return {k: v / count for k, v in total.items()}  # BIRTH


torch.manual_seed(0)
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
snapshots = []
for epoch in range(5):
    x = torch.randn(4, 2)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if loss.item() < 0:  # never true
        snapshots.append({k: v.clone() for k, v in model.state_dict().items()})
    if epoch == 3:
        model.load_state_dict(average(snapshots))
    print(epoch, loss.item())

# truth:
# {"phase": "weights", "op": "aten.div.Tensor", "module": [null, ""], "step": [3, 4], "kind": "nan", "cause": "empty-selection", "also": ["bad-weights"], "exit": 3}
