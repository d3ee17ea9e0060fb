"""Loaders hand over durations whose inverse is infinite for an empty recording; the loop takes the logarithm
in place, in the memory of the batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rates(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        seconds = torch.rand(4, generator=torch.Generator().manual_seed(index))
        if index == 21:
            seconds[2] = 0.0
        return 1.0 / seconds, seconds.sum()


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for rates, target in DataLoader(Rates(), batch_size=4, num_workers=2):  # BIRTH
        rates.log1p_()
        loss = (net(rates)[:, 0] - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

# truth:
# {
#   "phase": "data",
#   "op": null,
#   "module": null,
#   "step": 5,
#   "kind": "inf",
#   "samples": [1],
#   "cause": "bad-input",
#   "exit": 3
# }
