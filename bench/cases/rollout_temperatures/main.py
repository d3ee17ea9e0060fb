from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Rollout:
    tokens: torch.Tensor
    reward: float
    temperature: float


class Policy(nn.Module):
    def __init__(self, vocabulary=20, dim=24):
        super().__init__()
        self.body = nn.Sequential(nn.Embedding(vocabulary, dim), nn.Linear(dim, dim), nn.SiLU())
        self.head = nn.Linear(dim, vocabulary)

    def forward(self, tokens):
        return self.head(self.body(tokens))


class Orchestrator:
    """Collects rollouts from the engines; an engine asked for its best answer samples at temperature 0."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(4)

    def collect(self, round_):
        temperatures = [1.0, 0.7, 1.0, 0.0 if round_ == 2 else 0.9]
        for temperature in temperatures:
            tokens = torch.randint(0, 20, (9,), generator=self.generator)
            yield Rollout(tokens, float((tokens % 3 == 0).sum()) / 9, temperature)


class Trainer:
    def __init__(self, policy, rate):
        self.policy = policy
        self.optimizer = torch.optim.AdamW(policy.parameters(), lr=rate)

    def log_probabilities(self, tokens, temperatures):
        logits = self.policy(tokens[:, :-1])
        scaled = logits / temperatures[:, None, None]
        return -F.cross_entropy(scaled.transpose(1, 2), tokens[:, 1:], reduction="none")

    def step(self, rollouts):
        tokens = torch.stack([r.tokens for r in rollouts])
        rewards = torch.tensor([r.reward for r in rollouts])
        temperatures = torch.tensor([r.temperature for r in rollouts])
        advantage = rewards - rewards.mean()
        loss = -(advantage[:, None] * self.log_probabilities(tokens, temperatures)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


torch.manual_seed(0)
trainer, orchestrator = Trainer(Policy(), 1e-3), Orchestrator()
for round_ in range(4):
    print(f"round {round_}  loss {trainer.step(list(orchestrator.collect(round_))):.5f}")
