import torch
from torch import nn


class BeamStep(nn.Module):
    def __init__(self, vocab=7):
        super().__init__()
        self.embed = nn.Embedding(vocab, 8)
        self.head = nn.Linear(8, vocab)

    def forward(self, tokens, scores, alive):
        log_p = self.head(self.embed(tokens)).log_softmax(-1)
        kept = scores * alive  # BIRTH
        return kept[:, None] + log_p * alive[:, None]


@torch.no_grad()
def beam_search(model, beams=3, steps=6):
    tokens = torch.ones(beams, dtype=torch.long)
    scores, alive = torch.zeros(beams), torch.ones(beams)
    for t in range(steps):
        candidates = model(tokens, scores, alive)
        scores, flat = candidates.flatten().topk(beams)
        tokens = flat % 7
        if t == 3:
            scores[2] = float("-inf")  # forbidden by the grammar
            alive[2] = 0.0
        print(t, tokens.tolist(), [round(s, 2) for s in scores.tolist()])


torch.manual_seed(0)
beam_search(BeamStep().eval())

# truth:
# {"phase": "forward", "op": "aten.mul.Tensor", "module": "", "step": 4, "kind": "nan", "samples": [2], "cause": "inf-arithmetic", "tempting": ["fully-masked-row"], "exit": 3}
