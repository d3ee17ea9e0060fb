"""Distil a small answer ranker from a large one with the reverse KL divergence."""

import torch
import torch.nn.functional as F
from torch import nn

TOPICS, ANSWERS = 16, 12


class Ranker(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.hidden = nn.Linear(TOPICS, width)
        self.scores = nn.Linear(width, ANSWERS)

    def forward(self, question):
        return self.scores(F.gelu(self.hidden(question)))


def reverse_kl(student, teacher, temperature):
    """KL(student || teacher)."""
    student = F.softmax(student / temperature, dim=-1)
    teacher = F.log_softmax(teacher / temperature, dim=-1)
    return F.kl_div(teacher, student, reduction="batchmean") * temperature**2


class Distillation:
    def __init__(self, temperature):
        self.temperature = temperature
        self.teacher = Ranker(64).requires_grad_(False)
        self.student = Ranker(8)
        self.optimizer = torch.optim.Adam(self.student.parameters(), lr=5e-2)

    def step(self, questions):
        loss = reverse_kl(self.student(questions), self.teacher(questions), self.temperature)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


torch.manual_seed(0)
run = Distillation(temperature=0.02)
for step in range(30):
    print(step, f"{run.step(torch.randn(32, TOPICS)):.6f}")
