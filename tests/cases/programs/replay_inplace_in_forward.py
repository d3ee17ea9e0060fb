import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Expression(nn.Module):
    """Gene counts, brought to a library size of one and to a logarithmic scale."""

    def __init__(self, genes):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(genes, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, counts):
        counts.div_(counts.sum(dim=1, keepdim=True))  # BIRTH
        return self.net(torch.log1p(1e4 * counts))


torch.manual_seed(0)
counts = torch.randint(0, 9, (20, 7)).float()
counts[13] = 0  # an empty droplet
labels = torch.randint(0, 2, (20,))
model = Expression(7)
optimizer = torch.optim.RAdam(model.parameters(), lr=1e-3)
for x, y in DataLoader(TensorDataset(counts, labels), batch_size=4):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(round(loss.item(), 4))

# truth:
# {"phase": "forward", "op": "aten.div_.Tensor", "module": "", "step": 3, "kind": "nan", "samples": [1], "cause": "divide-by-zero", "also": ["empty-selection"], "tempting": ["bad-input"], "exit": 3}
