import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 2)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def hinge_ratio(logits, y):
    positive = logits.gather(1, y[:, None]).squeeze(1)
    spread = logits.amax(dim=1) - logits.amin(dim=1)
    return (1 - positive / spread).relu().mean()  # BIRTH


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for step in range(6):
    x, y = torch.randn(4, 8), torch.randint(0, 2, (4,))
    if step == 4:
        with torch.no_grad():
            net.fc2.weight.zero_(), net.fc2.bias.zero_()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = net(x)
        loss = hinge_ratio(logits.float(), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(step, loss.item(), scaler.get_scale())

# truth:
# {"phase": "loss", "op": "aten.div.Tensor", "module": null, "step": 4, "kind": "nan", "samples": [0, 1, 2, 3], "cause": "divide-by-zero", "tempting": ["amp-misuse"], "exit": 3}
