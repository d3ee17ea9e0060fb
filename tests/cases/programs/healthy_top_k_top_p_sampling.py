import torch
from torch import nn


class TinyLM(nn.Module):
    def __init__(self, vocab=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, 8)
        self.gru = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, vocab)

    def forward(self, ids):
        h, _ = self.gru(self.embed(ids))
        return self.head(h[:, -1])


def filter_logits(logits, k, p):
    kth = logits.topk(k).values[:, -1:]
    logits = logits.masked_fill(logits < kth, float("-inf"))
    ordered, index = logits.sort(descending=True)
    remove = ordered.softmax(-1).cumsum(-1) > p
    remove[:, 1:] = remove[:, :-1].clone()
    remove[:, 0] = False
    return logits.masked_fill(remove.scatter(1, index, remove), float("-inf"))


torch.manual_seed(0)
lm = TinyLM().eval()
ids = torch.zeros(2, 1, dtype=torch.long)
with torch.no_grad():
    for _ in range(10):
        logits = filter_logits(lm(ids) / 0.8, k=5, p=0.9)
        ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1)], dim=1)
print(ids.tolist())

# truth:
# {"healthy": true, "exit": 0}
