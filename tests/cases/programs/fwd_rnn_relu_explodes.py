import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(4, 8, nonlinearity="relu", batch_first=True)
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        states, _ = self.rnn(x)  # BIRTH
        return self.out(states[:, -1])


torch.manual_seed(0)
tagger = Tagger()
with torch.no_grad():
    tagger.rnn.weight_hh_l0.copy_(torch.eye(8) * 10)
optimizer = torch.optim.RMSprop(tagger.parameters(), lr=1e-9)
for step in range(5):
    length = 12 if step < 3 else 60
    series = torch.randn(3, length, 4)
    loss = tagger(series).abs().mean() * 1e-12
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.addmm.default", "module": "rnn", "step": 3, "kind": "inf", "cause": "divergence", "also": ["overflow"], "exit": 3}
