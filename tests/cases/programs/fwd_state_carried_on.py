"""A stream is read in pieces, and the state goes from one piece to the next: one stream falls silent."""

import torch
from torch import nn


class Loudness(nn.Module):
    def forward(self, state):
        return state / state.abs().amax(1, keepdim=True)  # BIRTH


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.hear = nn.Linear(3, 5, bias=False)
        self.level, self.say = Loudness(), nn.Linear(5, 2)

    def forward(self, piece, state):
        spoken = []
        for sound in piece.unbind(1):
            spoken.append(self.say(state))
            state = self.level(torch.tanh(self.hear(sound)))
        return torch.stack(spoken, 1), state


torch.manual_seed(0)
model = Listener()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
state = torch.ones(4, 5)
for step in range(7):
    piece = torch.randn(4, 6, 3)
    if step == 3:
        piece[2, -1] = 0  # heard in the next step
    spoken, state = model(piece, state.detach())
    loss = spoken.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "level", "step": 4, "kind": "nan", "samples": [2], "cause": "divide-by-zero", "exit": 3}
