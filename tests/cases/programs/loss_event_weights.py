import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)


def simulated_events(step):
    """Next-to-leading-order events carry a weight of +1 or -1."""
    weight = torch.ones(8)
    weight[: 4 if step == 3 else 2] = -1.0
    return torch.randn(8, 3), torch.randint(0, 2, (8, 1)).float(), weight[:, None]


for step in range(5):
    x, y, weight = simulated_events(step)
    each = nn.functional.binary_cross_entropy_with_logits(net(x), y, reduction="none")
    loss = (each * weight).sum() / weight.sum()  # BIRTH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.div.Tensor", "module": null, "step": 3, "kind": "inf", "cause": "divide-by-zero", "tempting": ["empty-selection"], "exit": 3}
