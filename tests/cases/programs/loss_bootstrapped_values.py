import torch
from torch import nn


class Value(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(3, 8)
        self.value = nn.Linear(8, 1)

    def forward(self, state):
        return self.value(torch.relu(self.features(state))).squeeze(1)


torch.manual_seed(0)
net = Value()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
gamma = 0.99
for step in range(120):
    state = torch.rand(16, 3)
    following = state * 2  # the walk goes outwards
    reward = 0.1 * torch.rand(16)
    with torch.no_grad():
        goal = reward + gamma * net(following)
    loss = 0.5 * nn.functional.mse_loss(net(state), goal)  # BIRTH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, f"{loss.item():.3g}")

# truth:
# {"phase": "loss", "op": "aten.mse_loss.default", "module": null, "step": 29, "kind": "inf", "cause": "divergence", "exit": 3}
