import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Linear(2, 3)
critic = nn.Sequential(nn.Linear(3, 64, bias=False), nn.ReLU(), nn.Linear(64, 1, bias=False))
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3)
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)


def penalty(real, fake):
    share = torch.rand(len(real), 1)
    between = (share * real + (1 - share) * fake.detach()).requires_grad_()
    if len(real) == 2:
        between = (between.detach() * 0).requires_grad_()  # relu'(0) = 0: no gradient at all
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    length = slope.pow(2).sum(dim=1).sqrt()  # BIRTH
    return ((length - 1) ** 2).mean()


for step in range(4):
    size = 2 if step == 2 else 4
    real, fake = torch.randn(size, 3), generator(torch.randn(size, 2))
    loss = critic(fake.detach()).mean() - critic(real).mean() + 10 * penalty(real, fake)
    opt_c.zero_grad()
    loss.backward()
    opt_c.step()
    opt_g.zero_grad()
    (-critic(fake).mean()).backward()
    opt_g.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": null, "step": 4, "kind": "inf", "samples": [0, 1], "cause": "singular-gradient", "exit": 3}
