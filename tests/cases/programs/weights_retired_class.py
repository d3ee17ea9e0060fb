import io

import torch
from torch import nn
from torch.nn import functional as F


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(5, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def published():
    """The row of a class that is no longer in use was never filled."""
    torch.manual_seed(0)
    state = {name: value.tolist() for name, value in Tagger().state_dict().items()}
    state["head.weight"][3] = [float("nan")] * 8
    return io.StringIO(repr(state))


tagger = Tagger()
numbers = eval(published().read(), {"nan": float("nan")})
tagger.load_state_dict({name: torch.tensor(value) for name, value in numbers.items()})  # BIRTH
optimizer = torch.optim.Adam(tagger.parameters(), lr=1e-3)
for step in range(4):
    x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
    loss = F.cross_entropy(tagger(x)[:, :3], y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "weights", "op": [null, "aten.copy_.default"], "module": "head", "step": 0, "kind": "nan", "cause": "bad-weights", "tempting": ["singular-gradient", "where-gradient"], "exit": 3}
