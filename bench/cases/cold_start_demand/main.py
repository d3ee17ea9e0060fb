import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def read_history(rng):
    """Weekly quantities of each article; new articles have been sold for a few weeks only."""
    weeks = [30, 41, 28, 36, 25, 33, 1, 40]
    return [rng.gamma(2.0, 5.0, n).astype(np.float32) for n in weeks]


class Articles(Dataset):
    length = 12

    def __init__(self, history):
        self.rows = []
        for article, quantity in enumerate(history):
            centre, spread = quantity.mean(), quantity.std(ddof=1)
            scaled = (quantity - centre) / spread
            for end in range(len(scaled), max(len(scaled) - 8, 0), -4):
                window = scaled[max(end - self.length, 0) : end]
                window = np.pad(window, (self.length - len(window), 0))
                self.rows.append((article, window.astype(np.float32)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        article, window = self.rows[i]
        series = torch.from_numpy(window)
        return article, series[:-1], series[-1]


class Demand(nn.Module):
    def __init__(self, articles):
        super().__init__()
        self.article = nn.Embedding(articles, 4)
        self.net = nn.Sequential(nn.Linear(15, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, article, past):
        return self.net(torch.cat([self.article(article), past], dim=1)).squeeze(1)


def main():
    torch.manual_seed(1)
    with np.errstate(all="ignore"):
        data = Articles(read_history(np.random.default_rng(1)))
    model = Demand(8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (article, past, target) in enumerate(DataLoader(data, batch_size=5)):
        loss = nn.functional.mse_loss(model(article, past), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
