import torch
from torch import nn


class Speller(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 6))

    def forward(self, x, forbidden):
        return self.body(x).masked_fill(forbidden, float("-inf"))


torch.manual_seed(0)
model = Speller()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
forbidden = torch.tensor([False, True, False, False, True, False])
for step in range(6):
    x, letter = torch.randn(4, 8), torch.tensor([0, 2, 3, 5])
    logits = model(x, forbidden)
    with torch.no_grad():  # the gradient of the cross entropy, written down
        gradient = (logits.softmax(-1) - nn.functional.one_hot(letter, 6)) / len(letter)
    optimizer.zero_grad()
    logits.backward(gradient)
    optimizer.step()
    print(step, f"{gradient.norm().item():.4f}")

# truth:
# {"healthy": true, "exit": 0}
