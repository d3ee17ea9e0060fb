import torch
from torch import nn


def masked_mean(values, mask):
    total = (values * mask).sum()
    return total / mask.sum()  # BIRTH


def train(model, optimizer, batches):
    for x, y, mask in batches:
        error = (model(x).squeeze(-1) - y) ** 2
        loss = masked_mean(error, mask)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        yield loss.item()


torch.manual_seed(0)
model = nn.Linear(3, 1)
batches = []
for i in range(12):
    mask = torch.ones(5) if i != 9 else torch.zeros(5)
    batches.append((torch.randn(5, 3), torch.randn(5), mask))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
print(list(train(model, optimizer, batches))[:3])

# truth:
# {"phase": "loss", "op": "aten.div.Tensor", "module": null, "step": 9, "kind": "nan", "cause": "empty-selection", "tempting": ["divide-by-zero"], "exit": 3}
