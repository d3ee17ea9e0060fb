import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

torch.manual_seed(0)
first = nn.Linear(4, 6)
last = nn.Linear(6, 1)
critic = nn.Sequential(first, nn.LeakyReLU(0.1), spectral_norm(last))
nn.init.zeros_(last.parametrizations.weight.original)
optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
for step in range(3):
    real, fake = torch.randn(4, 4), torch.rand(4, 4)
    score = critic(real)  # BIRTH
    loss = critic(fake).mean() - score.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": ["2", "2.parametrizations.weight.0"], "step": 0, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
