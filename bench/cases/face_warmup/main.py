"""Box regression for faces; the rate rises during warm-up and falls afterwards."""

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

STEPS_PER_EPOCH, EPOCHS, WARMUP_EPOCHS = 10, 6, 3
START, PEAK = 1e-5, 1e-2


class BoxHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(64, 32)
        self.boxes = nn.Linear(32, 4)

    def forward(self, x):
        return self.boxes(nn.functional.leaky_relu(self.features(x), 0.1))


def factor(step):
    epoch = step / STEPS_PER_EPOCH
    if epoch < WARMUP_EPOCHS:
        return (PEAK / START) ** (step / WARMUP_EPOCHS)
    return PEAK / START * (1 - (epoch - WARMUP_EPOCHS) / (EPOCHS - WARMUP_EPOCHS))


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.head = BoxHead()
        self.optimizer = torch.optim.SGD(self.head.parameters(), lr=START)
        self.schedule = LambdaLR(self.optimizer, factor)
        self.truth = torch.randn(64, 4) * 0.2

    def step(self):
        x = torch.randn(32, 64)
        loss = nn.functional.mse_loss(self.head(x), x @ self.truth)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.item()


trainer = Trainer()
for step in range(STEPS_PER_EPOCH * EPOCHS):
    loss = trainer.step()
    print(f"=> STEP {step:4d}  lr: {trainer.schedule.get_last_lr()[0]:.6f}  loss: {loss:.4g}")
