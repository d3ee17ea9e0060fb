import io

import torch
from torch import nn

torch.manual_seed(0)


def make():
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


trained, file = make(), io.BytesIO()
torch.save(trained.state_dict(), file)
content = bytearray(file.getvalue())
place = content.index(trained[2].weight.detach().numpy().tobytes())
content[place + 100 : place + 104] = b"\x00\x00\x80\x7f"  # a damaged exponent
net = make()
net.load_state_dict(torch.load(io.BytesIO(content)))  # BIRTH
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    loss = nn.functional.cross_entropy(net(torch.randn(4, 5)), torch.tensor([0, 1, 0, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "weights", "op": [null, "aten.copy_.default"], "module": "2", "step": 0, "kind": "inf", "cause": "bad-weights", "also": ["corrupted-memory"], "tempting": ["inf-arithmetic"], "exit": 3}
