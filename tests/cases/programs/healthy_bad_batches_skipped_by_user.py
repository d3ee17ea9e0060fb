import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sensors(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        x = torch.randn(4, generator=g)
        if i in (5, 17):
            x[2] = float("nan")
        return x, x.nan_to_num().sum()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    skipped = 0
    for x, y in DataLoader(Sensors(), batch_size=4, num_workers=2):
        if torch.isnan(x).any():
            skipped += 1
            continue
        loss = nn.functional.smooth_l1_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("skipped", skipped, f"{loss.item():.5f}")


if __name__ == "__main__":
    main()

# truth:
# {"healthy": true, "exit": 0}
