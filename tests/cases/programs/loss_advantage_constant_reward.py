import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)


def rollout(n, episode):
    states = torch.randn(n, 4)
    with torch.no_grad():
        actions = torch.distributions.Categorical(logits=policy(states)).sample()
    rewards = torch.ones(n) if episode == 3 else torch.rand(n)
    return states, actions, rewards


for episode in range(5):
    states, actions, rewards = rollout(6, episode)
    advantage = (rewards - rewards.mean()) / rewards.std()  # BIRTH
    dist = torch.distributions.Categorical(logits=policy(states), validate_args=False)
    loss = -(dist.log_prob(actions) * advantage).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(episode, loss.item())

# truth:
# {"phase": ["data", "loss"], "op": "aten.div.Tensor", "module": null, "step": 3, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
