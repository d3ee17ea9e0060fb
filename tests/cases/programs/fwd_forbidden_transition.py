import torch
from torch import nn


class Chain(nn.Module):
    """A conditional random field; what may not follow what has -inf in the learned table itself."""

    def __init__(self, tags):
        super().__init__()
        self.follows = nn.Parameter(torch.randn(tags, tags) * 0.1)
        with torch.no_grad():
            self.follows[0, 2] = float("-inf")
            self.follows[2, 1] = float("-inf")

    def forward(self, scores, tags):
        every = scores[:, 0]
        for t in range(1, scores.size(1)):
            every = torch.logsumexp(every[:, :, None] + self.follows[None], dim=1) + scores[:, t]
        own = scores[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, scores.size(1)):
            own = own + scores[:, t].gather(1, tags[:, t : t + 1]).squeeze(1)
            own = own + self.follows[tags[:, t - 1], tags[:, t]]  # BIRTH
        return (torch.logsumexp(every, dim=-1) - own).mean()


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 3)
        self.chain = Chain(3)

    def forward(self, words, tags):
        return self.chain(self.embed(words), tags)


torch.manual_seed(9)
model = Tagger()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    words = torch.randint(0, 30, (4, 6))
    tags = torch.tensor([[1, 1, 2, 2, 0, 0]] * 4)
    if step == 6:
        tags[2, 5] = 2  # an annotator's slip
    loss = model(words, tags)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# truth:
# {"phase": ["forward", "loss"], "op": "aten.index.Tensor", "module": "chain", "step": 6, "kind": "inf", "samples": [2], "cause": "infeasible-target", "tempting": ["bad-weights", "uninitialised-memory"], "exit": 3}
