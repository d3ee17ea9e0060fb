import torch
from torch import nn


class Actor(nn.Module):
    def __init__(self, observations=4, actions=5):
        super().__init__()
        self.body = nn.Linear(observations, 16)
        self.head = nn.Linear(16, actions)

    def forward(self, obs, legal):
        logits = self.head(torch.tanh(self.body(obs)))
        return logits.masked_fill(~legal, float("-inf")).log_softmax(dim=-1)


def episodes(n):
    for i in range(n):
        obs = torch.randn(6, 4)
        legal = torch.ones(6, 5, dtype=torch.bool)
        legal[:, 4] = False  # "surrender" is not allowed in the first rounds
        action = torch.randint(0, 4, (6,))
        if i == 3:
            action[4:] = -1  # the episode was over
        yield obs, legal, action, torch.rand(6)


torch.manual_seed(0)
actor = Actor()
optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
for i, (obs, legal, action, gain) in enumerate(episodes(5)):
    log_p = actor(obs, legal)
    taken = log_p[torch.arange(6), action]  # BIRTH
    loss = -(taken * gain).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, loss.item())

# truth:
# {"phase": "loss", "op": "aten.index.Tensor", "module": null, "step": 3, "kind": "inf", "samples": [4, 5], "cause": "index-out-of-range", "tempting": ["infeasible-target", "log-of-zero"], "exit": 3}
