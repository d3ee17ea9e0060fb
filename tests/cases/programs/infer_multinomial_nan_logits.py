import torch
from torch import nn
from torch.nn import functional as F


class CharModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.head = nn.Linear(4, 6)

    def forward(self, ids):
        h = self.embed(ids).mean(dim=1)
        h = h * torch.sqrt(self.scale)  # BIRTH
        return self.head(h)


torch.manual_seed(0)
model = CharModel().eval()
ids = torch.zeros(1, 1, dtype=torch.long)
with torch.no_grad():
    for step in range(8):
        model.scale -= 0.19
        probs = F.softmax(model(ids), dim=-1)
        ids = torch.cat([ids, torch.multinomial(probs, num_samples=1)], dim=1)
print(ids)

# truth:
# {"phase": "forward", "op": "aten.sqrt.default", "module": "", "step": 5, "kind": "nan", "cause": "invalid-domain", "tempting": ["invalid-probabilities"], "exit": 3}
