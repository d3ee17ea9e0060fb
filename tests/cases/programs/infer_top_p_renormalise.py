import torch
from torch import nn

torch.manual_seed(0)


class Bigram(nn.Module):
    def __init__(self, vocab=9):
        super().__init__()
        self.table = nn.Embedding(vocab, vocab)

    def forward(self, ids):
        return self.table(ids[:, -1])


def sample_top_p(probs, p):
    sorted_probs, order = probs.sort(dim=-1, descending=True)
    beyond = sorted_probs.cumsum(dim=-1) > p  # drops the first token too
    sorted_probs = sorted_probs.masked_fill(beyond, 0.0)
    sorted_probs = sorted_probs / sorted_probs.sum(dim=-1, keepdim=True)  # BIRTH
    pick = torch.multinomial(sorted_probs, 1)
    return order.gather(1, pick)


model = Bigram().eval()
ids = torch.zeros(2, 1, dtype=torch.long)
with torch.no_grad():
    model.table.weight.mul_(0.1)
    model.table.weight[:, 4] = -20.0
    for position in range(6):
        if position == 4:
            model.table.weight[ids[1, -1], 3] = 30.0  # one token takes all the mass
        probs = model(ids).softmax(-1)
        ids = torch.cat([ids, sample_top_p(probs, 0.9)], dim=1)
print(ids.tolist())

# truth:
# {"phase": ["forward", "loss"], "op": "aten.div.Tensor", "module": null, "step": 4, "kind": "nan", "cause": "invalid-probabilities", "also": ["divide-by-zero"], "exit": 3}
