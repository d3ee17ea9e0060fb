import torch
from torch import nn
from torch.utils.data import DataLoader


def collate(samples):
    longest = max(len(s) for s, _ in samples)
    batch = torch.zeros(len(samples), max(longest, 1))
    for row, (s, _) in zip(batch, samples):
        row[: len(s)] = torch.tensor(s)
    lengths = torch.tensor([float(len(s)) for s, _ in samples])
    average = batch.sum(dim=1) / lengths  # BIRTH
    return torch.stack([average, lengths], dim=1), torch.tensor([y for _, y in samples])


samples = [([1.0, 2.0], 0), ([3.0], 1), ([2.0, 2.0, 1.0], 1), ([4.0], 0), ([1.0], 0), ([], 1)]
torch.manual_seed(0)
model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(2):
    for x, y in DataLoader(samples, batch_size=2, collate_fn=collate):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())

# truth:
# {"phase": "data", "op": "aten.div.Tensor", "module": null, "step": 2, "kind": "nan", "samples": [1], "cause": "empty-selection", "also": ["bad-input"], "exit": 3}
