import torch
from torch import nn


class Chunked(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 1)

    def forward(self, chunks):
        total, count = torch.zeros(()), 0
        for chunk in chunks:
            total = total + self.out(chunk.log()).mean()  # BIRTH
            count += 1
        return total / torch.tensor(float(count))


torch.manual_seed(0)
net = Chunked()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(6):
    data = [torch.rand(2, 3) + 0.1 for _ in range(3)]
    if step == 4:
        data[1][0, 1] = 0.0
    loss = net(iter(data)).pow(2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.log.default", "module": "", "step": 4, "kind": "inf", "cause": "log-of-zero", "exit": 3}
