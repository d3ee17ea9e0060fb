import torch
from torch import nn

torch.use_deterministic_algorithms(True)


class RaggedEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(3, 6)
        self.out = nn.Linear(6, 1)

    def pad(self, sequences):
        longest = max(len(s) for s in sequences)
        padded = sequences[0].new_empty(len(sequences), longest, 3)  # BIRTH
        for row, s in zip(padded, sequences):
            row[: len(s)] = s
        return padded

    def forward(self, sequences):
        x = self.project(self.pad(sequences)).tanh()
        lengths = torch.tensor([len(s) for s in sequences])
        keep = (torch.arange(x.size(1)) < lengths[:, None]).float().unsqueeze(-1)
        return self.out((x * keep).sum(dim=1) / lengths[:, None])


torch.manual_seed(0)
model = RaggedEncoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(4):
    lengths = [4, 4, 4] if step < 2 else [4, 2, 3]
    sequences = [torch.randn(n, 3) for n in lengths]
    loss = model(sequences).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": [null, "aten.new_empty.default"], "module": "", "step": 2, "kind": "nan", "cause": "uninitialised-memory", "tempting": ["bad-input", "corrupted-memory"], "exit": 3}
