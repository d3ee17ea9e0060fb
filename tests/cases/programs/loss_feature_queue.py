import torch
import torch.nn.functional as F
from torch import nn


def normalised(keys):
    return keys / keys.norm(dim=1, keepdim=True)  # BIRTH


torch.manual_seed(0)
encoder, momentum_encoder = nn.Linear(8, 4, bias=False), nn.Linear(8, 4, bias=False)
momentum_encoder.load_state_dict(encoder.state_dict())
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
queue = F.normalize(torch.randn(32, 4), dim=1)
pointer = 0
for step in range(8):
    views = torch.randn(4, 8)
    if step == 4:
        views[2] = 0  # a crop outside of the picture
    queries = F.normalize(encoder(views), dim=1)
    with torch.no_grad():
        keys = normalised(momentum_encoder(views))
    positive = (queries * torch.where(views.any(1, keepdim=True), keys, 0.0)).sum(1, keepdim=True)
    logits = torch.cat([positive, queries @ queue.T], dim=1) / 0.1
    loss = F.cross_entropy(logits, torch.zeros(4, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    queue[pointer : pointer + 4] = keys
    pointer = (pointer + 4) % len(queue)
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.div.Tensor", "module": null, "step": [4, 5], "kind": "nan", "samples": [2], "cause": "divide-by-zero", "tempting": ["bad-input"], "exit": 3}
