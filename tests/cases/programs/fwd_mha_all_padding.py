import torch
import torch.nn as nn

torch.manual_seed(3)


class Pooler(nn.Module):
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(16, 4, batch_first=True)
        self.out = nn.Linear(16, 2)

    def forward(self, x, pad):
        attended, _ = self.mha(x, x, x, key_padding_mask=pad)  # BIRTH
        return self.out(attended[:, 0])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.pooler = Pooler()

    def forward(self, x, pad):
        return self.pooler(self.body(x).tanh(), pad)


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for i in range(4):
    x = torch.randn(3, 5, 8)
    lengths = torch.tensor([5, 3, 0 if i == 2 else 1])
    pad = torch.arange(5)[None] >= lengths[:, None]
    loss = net(x, pad).pow(2).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    print(i, float(loss.detach()))

# truth:
# {"phase": "forward", "op": "aten._softmax.default", "module": "pooler.mha", "step": 2, "kind": "nan", "cause": "fully-masked-row", "exit": 3}
