"""A codebook that is averaged in forward, without smoothing: a code that nobody chose becomes 0/0, in a buffer."""

import torch
from torch import nn

torch.manual_seed(0)


class Codebook(nn.Module):
    def __init__(self, codes, dim):
        super().__init__()
        self.register_buffer("codes", torch.randn(codes, dim))

    def forward(self, points):
        chosen = torch.cdist(points, self.codes).argmin(1)
        nearest = self.codes[chosen]
        if self.training:
            with torch.no_grad():
                marks = nn.functional.one_hot(chosen, len(self.codes)).float()
                self.codes.copy_((marks.T @ points) / marks.sum(0)[:, None])  # BIRTH
        return points + (nearest - points).detach(), (nearest.detach() - points).pow(2).mean()


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.book, self.decode = nn.Linear(6, 4), Codebook(8, 4), nn.Linear(4, 6)

    def forward(self, x):
        quantised, distance = self.book(self.encode(x))
        return self.decode(quantised), distance


model = Autoencoder()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(5):
    x = torch.randn(16, 6)
    drawn, distance = model(x)
    loss = (drawn - x).pow(2).mean() + 0.25 * distance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "book", "step": 0, "kind": "nan", "cause": "empty-selection", "also": ["divide-by-zero"], "exit": 3}
