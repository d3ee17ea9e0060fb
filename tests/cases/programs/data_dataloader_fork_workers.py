import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        x = torch.rand(5, generator=g)
        if i == 14:
            x = x * 0
        return x / x.sum(), torch.tensor(float(i % 3))


def main():
    torch.manual_seed(0)
    loader = DataLoader(Records(), batch_size=4, num_workers=2)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(loader):  # BIRTH
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()

# truth:
# {"phase": "data", "op": null, "module": null, "step": 3, "kind": "nan", "samples": [2], "cause": "bad-input", "exit": 3}
