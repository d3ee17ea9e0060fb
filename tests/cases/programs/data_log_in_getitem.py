import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Incomes(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(0)
        self.raw = torch.rand(24, 3, generator=g) * 1000 + 1
        self.raw[13, 1] = 0.0

    def __len__(self):
        return len(self.raw)

    def __getitem__(self, i):
        row = torch.log(self.raw[i])  # BIRTH
        return row, float(i % 2)


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(Incomes(), batch_size=4)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for x, y in loader:
        loss = (model(x).squeeze(1) - y).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(model.weight)

# truth:
# {"phase": "data", "op": "aten.log.default", "module": null, "step": 3, "kind": "inf", "cause": "log-of-zero", "also": ["bad-input"], "exit": 3}
