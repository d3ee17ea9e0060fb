import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.zeros(1))
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return torch.softmax(self.fc(x) / self.temperature, dim=-1)  # BIRTH


def pretrained():
    torch.manual_seed(3)
    state = Gate().state_dict()
    state["temperature"].fill_(0.8)
    return state


torch.manual_seed(0)
model = Gate()
masters = [p.detach().clone().float() for p in model.parameters()]  # kept in host memory
model.load_state_dict(pretrained())
optimizer = torch.optim.SGD(masters, lr=1e-2)
for step in range(4):
    x, y = torch.randn(6, 4), torch.randint(0, 3, (6,))
    loss = nn.functional.nll_loss(torch.log(model(x) + 1e-6), y)
    model.zero_grad()
    loss.backward()
    for master, p in zip(masters, model.parameters()):
        master.grad = None if p is model.temperature else p.grad.clone()
    optimizer.step()
    with torch.no_grad():
        for master, p in zip(masters, model.parameters()):
            p.copy_(master)
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "", "step": 1, "kind": "inf", "cause": "stale-copy", "tempting": ["bad-weights", "bad-hyperparameter"], "exit": 3}
