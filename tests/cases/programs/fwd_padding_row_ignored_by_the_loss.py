import torch
from torch import nn

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.query, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x, real):
        scores = self.query(x) @ x.transpose(-1, -2)
        scores = scores.masked_fill(~real[:, None], float("-inf"))
        weights = scores.softmax(-1)  # BIRTH
        return x + weights @ self.value(x)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attention, self.head = nn.Embedding(30, 16), Attention(16), nn.Linear(16, 30)

    def forward(self, tokens):
        return self.head(self.attention(self.embed(tokens), tokens != 0))


net = Tagger()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(6):
    tokens = torch.randint(1, 30, (4, 6))
    tokens[0, 4:] = 0
    if step == 4:
        tokens[2] = 0  # a sample of padding alone: the loss ignores it, its gradient does not
    loss = nn.functional.cross_entropy(net(tokens).flatten(0, 1), tokens.flatten(), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten._softmax.default", "module": "attention", "step": 4, "kind": "nan", "samples": [2], "cause": "fully-masked-row", "exit": 3}
