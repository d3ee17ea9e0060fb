import torch
from torch import nn


class Memory(nn.Module):
    """Adds each state to the history it is given; the third is divided by how far it has moved."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(3, 3)

    def forward(self, x, history):
        state = torch.tanh(self.cell(x))
        history.append(state.detach())
        if len(history) != 3:
            return state
        change = state - history[-2]
        return state / change.norm(dim=1, keepdim=True)  # BIRTH


torch.manual_seed(0)
net = Memory()
optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
for episode in range(5):
    history = []
    turns = torch.randn(3, 2, 3)
    if episode == 3:
        turns[2] = turns[1]
    loss = 0.0
    for x in turns:
        loss = loss + net(x, history).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(episode, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "", "step": 3, "kind": ["inf", "nan"], "cause": "divide-by-zero", "exit": 3}
