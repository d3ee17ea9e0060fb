import io

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)


def train(steps):
    for _ in range(steps):
        loss = nn.functional.cross_entropy(net(torch.randn(5, 4)), torch.tensor([0, 1, 0, 1, 1]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # BIRTH
        print(loss.item())


train(3)
file = io.BytesIO()
torch.save(optimizer.state_dict(), file)
file.seek(0)
kept = torch.load(file)
kept["state"][0]["momentum_buffer"].view(torch.int32)[1, 2] = 0x7F800000  # a damaged exponent
optimizer.load_state_dict(kept)
train(3)

# truth:
# {"phase": "optimizer", "op": ["aten.mul_.Tensor", "aten._foreach_mul_.Scalar"], "module": null, "step": 3, "kind": "inf", "cause": "optimizer-state", "also": ["corrupted-memory"], "exit": 3}
