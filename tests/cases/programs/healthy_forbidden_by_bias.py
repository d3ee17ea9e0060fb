import torch
from torch import nn


class Speller(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(10, 8)
        self.head = nn.Linear(8, 10)
        self.prior = nn.Parameter(torch.log(torch.tensor([0.0, *[1 / 9] * 9])))
        with torch.no_grad():
            self.head.bias[3] = float("-inf")  # a letter that is never written

    def forward(self, text):
        return self.head(self.letters(text)) + self.prior


def written(model, length):
    text = torch.ones(1, 1, dtype=torch.long)
    with torch.no_grad():
        for _ in range(length):
            scores = model(text[:, -1:])[:, -1]
            text = torch.cat([text, scores.argmax(-1, keepdim=True)], 1)
    return text[0].tolist()


torch.manual_seed(0)
model = Speller()
print(written(model, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(4):
    text = torch.tensor([1, 2, 4, 5, 6, 7, 8, 9]).roll(step)
    loss = nn.functional.cross_entropy(model(text[:-1]), text[1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}", written(model, 4))

# truth:
# {"healthy": true, "exit": 0}
