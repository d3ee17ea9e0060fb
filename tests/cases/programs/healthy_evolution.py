import math

import torch
from torch import nn


class Law(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return x.pow(self.w[0]) + self.w[1] * torch.log(x + self.w[2]) * self.w[3]


torch.manual_seed(0)
law = Law()
x = torch.rand(32)
y = 2 * x
best, mean = math.inf, torch.zeros(4)
with torch.no_grad():
    for generation in range(4):
        population = mean + torch.randn(6, 4)
        fitness = []
        for candidate in population:
            law.w.copy_(candidate)
            error = (law(x) - y).square().mean().item()  # NaN where x + w[2] is below 0
            fitness.append(math.inf if math.isnan(error) else error)
        order = sorted(range(6), key=fitness.__getitem__)
        mean, best = population[order[:2]].mean(0), min(best, fitness[order[0]])
        print(generation, f"{best:.4f}")
for trial in range(8):  # and at random, with gradients on
    nn.utils.vector_to_parameters(torch.randn(4), law.parameters())
    error = nn.functional.mse_loss(law(x), y)
    if error.item() < best:
        best = error.item()
print(f"{best:.4f}")

# truth:
# {"healthy": true, "exit": 0, "patient": true}
