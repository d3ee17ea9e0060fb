"""A softmax written out, at a temperature that is too low: the distribution refuses what comes of it, before
there is any loss."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)


def act(state, temperature):
    logits = policy(state) / temperature
    chances = logits.exp() / logits.exp().sum(-1, keepdim=True)  # BIRTH
    return Categorical(probs=chances)


for step in range(6):
    distribution = act(torch.randn(6, 5), 1.0 if step != 3 else 1e-3)
    action = distribution.sample()
    loss = -(distribution.log_prob(action) * torch.randn(6)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.exp.default", "module": null, "step": 3, "kind": "inf", "cause": "overflow", "tempting": ["transient-fault", "invalid-probabilities"], "exit": 3}
