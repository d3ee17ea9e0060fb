import torch
from torch import nn


class HistogramNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, counts):
        h = counts.clone()
        h.div_(h.sum(dim=1, keepdim=True))  # BIRTH
        h.mul_(2).sub_(1)
        return self.fc(h)


def batches(n):
    gen = torch.Generator().manual_seed(5)
    for i in range(n):
        counts = torch.randint(1, 9, (4, 6), generator=gen).float()
        if i == 6:
            counts[0].zero_()
        yield counts, torch.randint(0, 3, (4,), generator=gen)


torch.manual_seed(0)
net = HistogramNet()
optimizer = torch.optim.NAdam(net.parameters(), lr=1e-2)
criterion = nn.CrossEntropyLoss()
for counts, label in batches(8):
    loss = criterion(net(counts), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("last loss", loss.item())

# truth:
# {"phase": "forward", "op": "aten.div_.Tensor", "module": "", "step": 6, "kind": "nan", "samples": [0], "cause": "divide-by-zero", "exit": 3}
