import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.bn = nn.BatchNorm1d(8)
        self.fc2 = nn.Linear(8, 2)

    def forward(self, x):
        h = torch.relu(self.bn(self.fc1(x)))
        return self.fc2(torch.log(h.sum(dim=1, keepdim=True) * self.gate(x)) + h)  # BIRTH

    def gate(self, x):
        return (x[:, :1] < 50).float()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right


torch.manual_seed(0)
train = TensorDataset(torch.randn(16, 4), torch.randint(0, 2, (16,)))
valid = TensorDataset(torch.randn(8, 4), torch.randint(0, 2, (8,)))
train.tensors[0][13, 0] = 99.0
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for x, y in DataLoader(train, batch_size=4):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, evaluate(model, DataLoader(valid, batch_size=8)))

# truth:
# {"phase": "forward", "op": "aten.log.default", "module": "", "step": 3, "kind": "inf", "samples": [1], "cause": "log-of-zero", "exit": 3}
