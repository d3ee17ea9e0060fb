import torch
from torch import nn

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)  # memory that nobody has written is filled with NaN
body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())
width = body(torch.empty(1, 1, 8, 8)).shape[1]
with torch.no_grad():
    assert body(torch.empty(2, 1, 8, 8)).shape == (2, width)
head = nn.Linear(width, 2)


class Padded(nn.Module):
    def forward(self, rows, length):
        whole = torch.empty(length, rows.shape[1])
        whole[: len(rows)] = rows
        return whole


pad = Padded()
print(f"{pad(torch.ones(3, 2), 5)[:3].sum().item():.1f}")
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
for step in range(4):
    loss = head(body(torch.randn(3, 1, 8, 8))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")

# truth:
# {"healthy": true, "exit": 0, "patient": true}
