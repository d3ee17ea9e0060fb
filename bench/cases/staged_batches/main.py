import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

ROWS, COLUMNS = 6, 5


class Stager:
    """Reads batches into one staging buffer and sends them to the accelerator in the background."""

    def __init__(self, batches):
        self.batches = batches
        self.staging = torch.zeros(ROWS, COLUMNS)
        self.link = ThreadPoolExecutor(max_workers=1)

    def read(self, number):
        self.staging.zero_()
        generator = torch.Generator().manual_seed(number)
        self.staging.copy_(torch.randn(ROWS, COLUMNS, generator=generator))

    def send(self, number, target):
        if number == 4:
            time.sleep(1.2)  # somebody else is using the link
        return target.copy_(self.staging)

    def __iter__(self):
        self.read(0)
        for number in range(self.batches):
            sent = self.link.submit(self.send, number, torch.empty(ROWS, COLUMNS))
            time.sleep(0.02)
            self.staging.zero_()
            yield sent.result()
            self.read(number + 1)


def direction(x):
    return x / x.norm(dim=1, keepdim=True)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(COLUMNS, 12), nn.ReLU(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, batch in enumerate(Stager(6)):
    x = direction(batch)
    loss = (model(x).squeeze(1) - x[:, 0].abs()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}  loss {loss.item():.5f}")
