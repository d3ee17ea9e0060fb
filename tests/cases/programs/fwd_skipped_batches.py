import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x, y = torch.randn(48, 3), torch.randn(48, 1)
x[21, 1] = float("inf")  # a stuck sensor
for epoch in range(2):
    model.train()
    for i in range(0, 40, 8):
        prediction = model(x[i : i + 8])  # BIRTH
        loss = nn.functional.mse_loss(prediction, y[i : i + 8])
        if not torch.isfinite(loss):
            print("skipped", i)
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        error = (model(x[40:]) - y[40:]).abs().mean()
    print(epoch, error.item())

# truth:
# {"phase": ["weights", "forward"], "op": [null, "aten.native_batch_norm.default"], "module": [null, "", "1"], "step": [2, 4], "kind": ["nan", "inf"], "cause": "running-stats", "also": ["bad-input"], "exit": 3}
