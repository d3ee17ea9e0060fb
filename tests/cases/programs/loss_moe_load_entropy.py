import torch
from torch import nn
from torch.nn import functional as F


class Mixture(nn.Module):
    def __init__(self, dim=6, experts=5):
        super().__init__()
        self.router = nn.Linear(dim, experts)
        self.w1 = nn.Parameter(torch.randn(experts, dim, 12) * 0.2)
        self.w2 = nn.Parameter(torch.randn(experts, 12, dim) * 0.2)

    def forward(self, x):
        probability = self.router(x).softmax(-1)
        dispatch = F.one_hot(probability.argmax(-1), probability.size(-1)).to(x.dtype)
        hidden = F.gelu(torch.einsum("te,td,edf->tef", dispatch, x, self.w1))
        y = torch.einsum("tef,efd,te->td", hidden, self.w2, probability)
        return x + y, probability, dispatch


def balance(probability, dispatch):
    load = dispatch.mean(0) * probability.mean(0)
    load = load / load.sum()
    return (load * load.log()).sum()  # BIRTH


torch.manual_seed(0)
model = Mixture()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(5):
    x = torch.randn(64, 6)
    if step == 3:
        x = x + 4 * model.router.weight.data[2] / model.router.weight.data[2].norm() ** 2
    y, probability, dispatch = model(x)
    loss = F.mse_loss(y, torch.roll(x, 1, dims=1)) + 0.01 * balance(probability, dispatch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))

# truth:
# {"phase": "loss", "op": "aten.log.default", "module": null, "step": 3, "kind": "inf", "cause": "log-of-zero", "also": ["empty-selection"], "exit": 3}
