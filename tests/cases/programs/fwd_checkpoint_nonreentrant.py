import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        h = self.fc(x)
        h = h / h.amax(dim=1, keepdim=True).clamp(min=0)  # BIRTH
        return nn.functional.leaky_relu(h)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(5), Block(5)])
        self.out = nn.Linear(5, 1)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.out(x)


torch.manual_seed(0)
net = Net()
with torch.no_grad():
    net.blocks[0].fc.bias.fill_(2.0)
    net.blocks[1].fc.bias.fill_(3.0)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(4):
    x = torch.randn(4, 5)
    if step == 3:
        with torch.no_grad():
            net.blocks[1].fc.bias.fill_(-5.0)
    loss = net(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "blocks.1", "step": 3, "kind": "inf", "samples": [0, 1, 2, 3], "cause": "divide-by-zero", "exit": 3}
