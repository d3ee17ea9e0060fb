import torch
from torch import nn


class Pooling(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(4, 4)

    def forward(self, x, there):
        scores = self.q(x) @ x.transpose(1, 2)
        scores = scores.masked_fill(~(there[:, None] & there[:, :, None]), float("-inf"))
        return scores.softmax(-1) @ x  # NaN in the rows of padding


torch.manual_seed(0)
model = Pooling().eval()
loss_of = nn.CrossEntropyLoss()
there = torch.arange(5) < torch.tensor([[5], [3]])
with torch.no_grad():
    for batch in range(4):
        x = torch.randn(2, 5, 4)
        labels = torch.randint(0, 4, (2, 5)).masked_fill(~there, -100)
        scores = model(x, there)
        if batch < 2:
            print(batch, f"{scores[there].mean().item():.4f}")
        else:
            print(batch, f"{loss_of(scores.flatten(0, 1), labels.flatten()).item():.4f}")

# truth:
# {"healthy": true, "exit": 0, "patient": true}
