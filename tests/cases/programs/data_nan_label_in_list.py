import torch
from torch import nn

rows = [[0.1, 1.0], [0.4, 0.2], [0.9, 0.5], [0.3, 0.3], [0.7, 0.8], [0.2, 0.6]]
prices = [1.5, 2.5, 0.5, 3.5, float("nan"), 2.0]
x = torch.tensor(rows)
y = torch.tensor(prices)  # BIRTH
torch.manual_seed(0)
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(0, 6, 2):
    prediction = model(x[i : i + 2]).squeeze(1)
    loss = (prediction - y[i : i + 2]).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, loss.item())

# truth:
# {"phase": "data", "op": null, "module": null, "step": [-1, 2], "kind": "nan", "cause": "bad-input", "exit": 3}
