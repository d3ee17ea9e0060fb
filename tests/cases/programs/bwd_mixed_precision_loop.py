import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 16)
        self.fc2 = nn.Linear(16, 1)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-7)
scaler = torch.amp.GradScaler("cpu")
for step in range(5):
    x = torch.randn(4, 6)
    y = 5 * x.sum(1, keepdim=True)
    with torch.autocast("cpu", dtype=torch.float16):
        prediction = net(x)
    loss = nn.functional.mse_loss(prediction.float(), y)  # BIRTH
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten._to_copy.default", "module": null, "step": 0, "kind": "inf", "cause": "amp-misuse", "tempting": ["half-overflow"], "exit": 3}
