import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Linear(2, 3)
critic = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
opt_g = torch.optim.SGD(generator.parameters(), lr=1e-4)
opt_c = torch.optim.SGD(critic.parameters(), lr=0.2, momentum=0.9)
for step in range(30):
    real = torch.randn(8, 3) + 1
    loss_c = critic(generator(torch.randn(8, 2)).detach()).mean() - critic(real).mean()
    opt_c.zero_grad()
    loss_c.backward()
    opt_c.step()
    fake = generator(torch.randn(8, 2))
    loss_g = -critic(fake).mean()  # BIRTH
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    print(step, f"{loss_c.item():.3g} {loss_g.item():.3g}")

# truth:
# {"phase": "forward", "op": "aten.addmm.default", "module": "4", "step": [21, 10], "kind": "inf", "cause": "divergence", "exit": 3}
