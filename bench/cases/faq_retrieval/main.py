"""Retrieve answers to questions: two bag-of-words encoders and a contrastive loss over the batch."""

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocabulary=120, width=24):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocabulary, width)

    def forward(self, tokens):
        return F.normalize(self.bag(tokens), dim=-1)


class PartitionContrast(nn.Module):
    """Questions against answers, and questions against questions, in one partition function."""

    def __init__(self, encoder, temperature=0.01):
        super().__init__()
        self.encoder = encoder
        self.temperature = temperature

    def forward(self, questions, answers):
        q, a = self.encoder(questions), self.encoder(answers)
        pairs = torch.exp(q @ a.t() / self.temperature)
        within = torch.exp((q @ q.t()).fill_diagonal_(0.0) / self.temperature)
        chance = pairs.diag() / (pairs.sum(dim=1) + within.sum(dim=1))
        return -torch.log(chance).mean()


def dialogue(size):
    """An answer repeats most words of its question."""
    questions = torch.randint(120, (size, 6))
    answers = torch.where(torch.rand(size, 6) < 0.3, questions, torch.randint(120, (size, 6)))
    return questions, answers


torch.manual_seed(0)
model = PartitionContrast(Encoder())
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
for step in range(40):
    questions, answers = dialogue(16)
    if step == 6:
        answers[11] = questions[11]  # a question that was pasted as its own answer
    loss = model(questions, answers)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")
