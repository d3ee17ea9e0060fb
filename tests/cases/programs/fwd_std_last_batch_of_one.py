import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class BatchStats(nn.Module):
    """Appends how far each feature is from the batch, as a discriminator does."""

    def forward(self, x):
        spread = x.std(dim=0)  # BIRTH
        return torch.cat([x, spread.mean().expand(x.size(0), 1)], dim=1)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(3, 6), nn.Tanh())
        self.stats = BatchStats()
        self.score = nn.Linear(7, 1)

    def forward(self, x):
        return self.score(self.stats(self.features(x)))


def main():
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(17, 3), torch.randn(17, 1))
    loader = DataLoader(dataset, batch_size=4, shuffle=True)
    critic = Critic()
    optimizer = torch.optim.Adam(critic.parameters())
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.l1_loss(critic(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


main()

# truth:
# {"phase": "forward", "op": "aten.std.correction", "module": "stats", "step": 4, "kind": "nan", "cause": "empty-selection", "also": ["divide-by-zero"], "exit": 3}
