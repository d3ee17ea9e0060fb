import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def rescale(module, args, output):
    return output / output.mean(dim=1, keepdim=True)  # BIRTH


net[1].register_forward_hook(rescale)
with torch.no_grad():
    net[0].bias.zero_()
optimizer = torch.optim.SGD(net.parameters(), lr=0.0, momentum=0.0)
for i in range(3):
    x = torch.randn(3, 4).abs() * net[0].weight.detach()[0].sign()
    if i == 2:
        x[1] = 0
    loss = nn.functional.cross_entropy(net(x), torch.tensor([0, 1, 0]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, loss.item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": ["", "1"], "step": 2, "kind": "nan", "samples": [1], "cause": "divide-by-zero", "exit": 3}
