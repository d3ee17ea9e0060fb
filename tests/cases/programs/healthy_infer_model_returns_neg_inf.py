import torch
from torch import nn


class Suggest(nn.Module):
    """Scores for 8 items; the ones the user already has are returned as -inf."""

    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(5, 4)
        self.items = nn.Embedding(8, 4)

    def forward(self, user, owned):
        scores = self.users(user) @ self.items.weight.T
        return scores.masked_fill(owned, -torch.inf)


torch.manual_seed(0)
suggest = Suggest().eval()
owned = torch.zeros(5, 8, dtype=torch.bool)
with torch.no_grad():
    for visit in range(5):
        user = torch.tensor([visit])
        pick = suggest(user, owned[user]).argmax(-1)
        owned[user, pick] = True
        second = suggest(user, owned[user]).topk(3).indices
        print(visit, pick.item(), second.tolist())

# truth:
# {"healthy": true, "exit": 0}
