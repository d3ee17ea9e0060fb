import torch
from torch import nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.actor, self.critic = nn.Linear(16, 5), nn.Linear(16, 1)

    def forward(self, board, legal):
        h = self.body(board)
        logits = self.actor(h).masked_fill(~legal, float("-inf"))
        return logits, self.critic(h).squeeze(-1)


torch.manual_seed(0)
policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
for episode in range(6):
    board = torch.randn(4, 6)
    legal = torch.rand(4, 5) > 0.5
    legal[:, 0] = True
    logits, value = policy(board, legal)
    action = Categorical(logits=logits).sample()
    reward = torch.rand(4)
    advantage = reward - value.detach()
    log_p = torch.log_softmax(logits, -1).gather(1, action[:, None]).squeeze(1)
    loss = -(log_p * advantage).mean() + (value - reward).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(episode, f"{loss.item():.4f}")

# truth:
# {"healthy": true, "exit": 0}
