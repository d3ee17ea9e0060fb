"""Read gas meters with CTC; photos that are too narrow for their reading are left out by the loss."""

import torch
from torch import nn


class MeterReader(nn.Module):
    def __init__(self, digits=10):
        super().__init__()
        self.convolution = nn.Conv1d(8, 24, 3, stride=2, padding=1)
        self.recurrent = nn.LSTM(24, 24, bidirectional=True, batch_first=True)
        self.digits = nn.Linear(48, digits + 1)

    def forward(self, strips):
        features = torch.relu(self.convolution(strips)).transpose(1, 2)
        return self.digits(self.recurrent(features)[0]).log_softmax(dim=-1)


def photo(digits, width, patterns):
    strip = patterns[digits].repeat_interleave(4, dim=0)[:width]
    return nn.functional.pad(strip.t(), (0, width - len(strip))) + 0.05 * torch.randn(8, width)


torch.manual_seed(0)
patterns = torch.randn(10, 8)
reader = MeterReader()
criterion = nn.CTCLoss(blank=10, zero_infinity=True)
optimizer = torch.optim.Adam(reader.parameters(), lr=3e-3)
for step in range(12):
    readings = torch.randint(10, (6, 5))
    if step % 3 == 1:
        readings[2] = 7  # 77777 needs nine columns, a narrow photo has eight
    width = 16 if step % 3 == 1 else 24
    strips = torch.stack([photo(reading, width, patterns) for reading in readings])
    log_prob = reader(strips).transpose(0, 1)
    lengths = torch.full((6,), log_prob.shape[0])
    loss = criterion(log_prob, readings, lengths, torch.full((6,), 5))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step}: {loss.item():.4f}")
