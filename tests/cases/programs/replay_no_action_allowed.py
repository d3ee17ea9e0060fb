"""A policy that masks the actions which are not allowed returns -inf on purpose; in one state none is allowed,
and the program dies when it draws an action."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, 4)

    def forward(self, state, allowed):
        return self.body(state).masked_fill(~allowed, -torch.inf)


torch.manual_seed(0)
policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
for step in range(6):
    allowed = torch.rand(6, 4) > 0.3
    allowed[:, 0] = True
    if step == 3:
        allowed[2] = False
    logits = policy(torch.randn(6, 5), allowed)
    chances = torch.softmax(logits, dim=-1)  # BIRTH
    action = torch.multinomial(chances, 1)
    loss = -(chances.gather(1, action).log().squeeze(1) * torch.randn(6)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten._softmax.default", "module": null, "step": 3, "kind": "nan", "cause": "fully-masked-row", "tempting": ["invalid-probabilities"], "exit": 3}
