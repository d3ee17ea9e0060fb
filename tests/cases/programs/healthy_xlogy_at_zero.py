import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 10), nn.Softplus(), nn.Linear(10, 3), nn.Softmax(dim=-1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(5):
    x = torch.randn(4, 5)
    target = nn.functional.one_hot(torch.randint(0, 3, (4,)), 3).float()
    q = net(x)
    cross = -torch.special.xlogy(target, q).sum(-1).mean()
    entropy = -torch.special.xlogy(target, target).sum(-1).mean()  # 0 log 0 = 0
    loss = cross - entropy
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.5f}")

# truth:
# {"healthy": true, "exit": 0}
