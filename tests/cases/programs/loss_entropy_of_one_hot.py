import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, obs):
        return torch.softmax(self.fc(obs), dim=-1)


def entropy(p):
    log_p = p.log()  # BIRTH
    return -(p * log_p).sum(dim=-1)


torch.manual_seed(0)
policy = Policy()
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
for t in range(15):
    obs = torch.randn(2, 3)
    if t == 13:
        obs[0] *= 1e4
    probs = policy(obs)
    loss = -0.01 * entropy(probs).mean() + probs[:, 0].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.4f}")

# truth:
# {"phase": "loss", "op": "aten.log.default", "module": null, "step": 13, "kind": "inf", "samples": [0], "cause": "log-of-zero", "tempting": ["invalid-probabilities"], "exit": 3}
