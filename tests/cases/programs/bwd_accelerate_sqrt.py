import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Distance(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3, 4)

    def forward(self, pair):
        a, b = self.embed(pair[:, 0]), self.embed(pair[:, 1])
        return (a - b).square().sum(1).sqrt()  # BIRTH


torch.manual_seed(0)
pairs = torch.randn(12, 2, 3)
pairs[9, 1] = pairs[9, 0]
accelerator = Accelerator(cpu=True)
model = Distance()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(pairs), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for (pair,) in loader:
    loss = (model(pair) - 1).abs().mean()
    optimizer.zero_grad()
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(loss.item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": "", "step": 2, "kind": "inf", "samples": [1], "cause": "singular-gradient", "exit": 3}
