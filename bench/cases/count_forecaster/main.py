import torch
from torch import nn


class TargetNormalizer:
    """Brings the target to the scale of the network and back."""

    def __init__(self, method="standard", center=True):
        self.method, self.center = method, center

    def fit(self, y):
        if self.method == "identity":
            self.center_, self.scale_ = torch.tensor(0.0), torch.tensor(1.0)
        else:
            self.center_, self.scale_ = y.mean(), y.std()
        if not self.center:
            self.scale_ = self.center_
            self.center_ = torch.tensor(0.0)
        return self

    def transform(self, y):
        return (y - self.center_) / self.scale_

    def inverse_transform(self, y):
        return y * self.scale_ + self.center_


class Forecaster(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, history):
        states, _ = self.rnn(history.unsqueeze(-1))
        return self.head(states).squeeze(-1)


torch.manual_seed(7)
hours = torch.arange(400.0)
sales = torch.poisson(6 + 4 * torch.sin(hours / 24 * 6.28))
normalizer = TargetNormalizer(method="identity", center=False).fit(sales[:300])
windows = sales[:300].unfold(0, 25, 5)

model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(3):
    for batch in windows.split(14):
        series = normalizer.transform(batch)
        forecast = model(series[:, :-1])
        loss = nn.functional.smooth_l1_loss(forecast, series[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}  loss {loss.item():.4f}")
