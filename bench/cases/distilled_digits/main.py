"""Learns ten synthetic examples such that a classifier trained on them alone does well on real ones."""

import torch
from torch import nn
from torch.func import functional_call, grad


def classifier():
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 10))


def real_digits(prototypes, count=128):
    label = torch.randint(0, 10, (count,))
    return prototypes[label] + 0.2 * torch.randn(count, 12), label


class Distiller(nn.Module):
    def __init__(self, inner_rate, inner_steps):
        super().__init__()
        self.examples = nn.Parameter(torch.randn(10, 12))
        self.inner_rate, self.inner_steps = inner_rate, inner_steps
        self.student = classifier().requires_grad_(False)

    def inner_loss(self, weights):
        output = functional_call(self.student, weights, (self.examples,))
        return (output - torch.eye(10)).square().sum()

    def forward(self, x, label):
        weights = {k: v.detach().clone() for k, v in self.student.named_parameters()}
        for _ in range(self.inner_steps):
            slopes = grad(self.inner_loss)(weights)
            weights = {k: w - self.inner_rate * slopes[k] for k, w in weights.items()}
        return nn.functional.cross_entropy(functional_call(self.student, weights, (x,)), label)


torch.manual_seed(0)
prototypes = torch.randn(10, 12)
distiller = Distiller(inner_rate=0.1, inner_steps=12)
optimizer = torch.optim.Adam([distiller.examples], lr=0.02)
for epoch in range(4):
    loss = distiller(*real_digits(prototypes))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, f"{loss.item():.4f}")
