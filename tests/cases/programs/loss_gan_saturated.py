import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
discriminator = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1), nn.Sigmoid())
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3)


def d_loss(real_score, fake_score):
    fake_part = torch.log(1 - fake_score)  # BIRTH
    return -(torch.log(real_score) + fake_part).mean()


for step in range(3):
    real = torch.randn(4, 3) + 2
    fake = generator(torch.randn(4, 2))
    if step == 2:
        with torch.no_grad():  # "sharpen" the discriminator
            discriminator[2].bias.fill_(40.0)
    opt_d.zero_grad()
    loss_d = d_loss(discriminator(real), discriminator(fake.detach()))
    loss_d.backward()
    opt_d.step()

    opt_g.zero_grad()
    loss_g = -discriminator(generator(torch.randn(4, 2))).mean()
    loss_g.backward()
    opt_g.step()
    print(step, loss_d.item(), loss_g.item())

# truth:
# {"phase": "loss", "op": "aten.log.default", "module": null, "step": [4, 2], "kind": "inf", "samples": [0, 1, 2, 3], "cause": "log-of-zero", "exit": 3}
