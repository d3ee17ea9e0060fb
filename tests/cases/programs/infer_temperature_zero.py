import torch
from torch import nn

torch.manual_seed(0)


class TinyLM(nn.Module):
    def __init__(self, vocab=12):
        super().__init__()
        self.embed = nn.Embedding(vocab, 8)
        self.rnn = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, vocab)

    def forward(self, ids):
        h, _ = self.rnn(self.embed(ids))
        return self.head(h[:, -1])


@torch.no_grad()
def generate(model, ids, temperatures):
    for t in temperatures:
        logits = model(ids)
        logits = logits / t  # BIRTH
        probs = torch.softmax(logits, dim=-1)
        nxt = torch.multinomial(probs, 1)
        ids = torch.cat([ids, nxt], dim=1)
    return ids


lm = TinyLM().eval()
print(generate(lm, torch.tensor([[1, 2]]), [1.0, 0.7, 0.3, 0.0]))

# truth:
# {"phase": ["forward", "loss"], "op": "aten.div.Tensor", "module": null, "step": 3, "kind": "inf", "samples": [0], "cause": "bad-hyperparameter", "also": ["invalid-probabilities"], "exit": 3}
