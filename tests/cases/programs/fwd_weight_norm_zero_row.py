import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        nn.init.zeros_(self.fc.weight)  # zero-init the last layer, as the paper says
        self.fc = weight_norm(self.fc)

    def forward(self, x):
        return self.fc(x)  # BIRTH


torch.manual_seed(0)
decoder = Decoder()
optimizer = torch.optim.Adam(decoder.parameters(), lr=1e-3)
for _ in range(2):
    loss = (decoder(torch.randn(2, 4)) - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())

# truth:
# {"phase": "forward", "op": "aten._weight_norm_interface.default", "module": ["fc", "fc.parametrizations.weight.0"], "step": 0, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
