"""Rewards are scaled by their deviation; in one batch all of them are the same. A target network is refreshed
between the steps and called without gradients within them."""

import torch
from torch import nn

torch.manual_seed(0)
critic, target, other = nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(4, 2)
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
for step in range(5):
    state = torch.randn(8, 4)
    reward = torch.tensor([float(i % 3) if step != 3 else 1.0 for i in range(8)])
    reward = (reward - reward.mean()) / reward.std()  # BIRTH
    with torch.no_grad():
        value = torch.minimum(target(state).max(1).values, other(state).max(1).values)
    loss = (critic(state)[:, 0] - reward - 0.99 * value).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    target.load_state_dict(critic.state_dict())
    other.load_state_dict(critic.state_dict())

# truth:
# {
#   "phase": "data",
#   "op": "aten.div.Tensor",
#   "module": null,
#   "step": 3,
#   "kind": "nan",
#   "cause": "divide-by-zero",
#   "tempting": ["empty-selection"],
#   "exit": 3
# }
