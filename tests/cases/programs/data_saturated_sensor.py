import torch
from torch import nn


def batches(seed, count):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        x = torch.randn(5, 3, generator=generator)
        yield x, x.sum(1, keepdim=True)


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    total = sum(nn.functional.mse_loss(model(x), y).item() for x, y in data)
    model.train()
    return total


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
readings = list(batches(9, 3))
readings[1][0][2, 1] = float("inf")  # BIRTH
for epoch in range(3):
    for x, y in batches(epoch, 4):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, round(loss.item(), 4), round(evaluate(model, readings), 4))

# truth:
# {"phase": "data", "op": [null, "aten.fill_.Tensor", "aten.copy_.default"], "module": null, "step": [4], "kind": "inf", "samples": [2], "cause": "bad-input", "exit": 3}
