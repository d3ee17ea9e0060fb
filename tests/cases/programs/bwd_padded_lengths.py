import torch
from torch import nn


class BondLengths(nn.Module):
    def __init__(self):
        super().__init__()
        self.move = nn.Linear(3, 3)

    def forward(self, atoms, mask):
        atoms = atoms + 0.1 * self.move(atoms)
        step = (atoms[:, 1:] - atoms[:, :-1]) * mask[:, 1:, None]
        length = step.square().sum(-1).sqrt()  # BIRTH
        return length * mask[:, 1:]


torch.manual_seed(0)
model = BondLengths()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for batch in range(4):
    atoms, mask = torch.randn(3, 5, 3), torch.ones(3, 5)
    if batch == 1:
        mask[2, 4] = 0  # a smaller molecule
    loss = (model(atoms, mask) - 1.5 * mask[:, 1:]).square().mean()
    print(batch, loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": "", "step": 1, "kind": "nan", "samples": [2], "cause": "where-gradient", "also": ["singular-gradient"], "exit": 3}
