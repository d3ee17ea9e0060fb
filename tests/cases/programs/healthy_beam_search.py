import torch
from torch import nn


class Next(nn.Module):
    def __init__(self, vocab=7):
        super().__init__()
        self.table = nn.Linear(vocab, vocab)

    def forward(self, onehot):
        return self.table(onehot).log_softmax(-1)


@torch.inference_mode()
def beam_search(model, beams, steps, vocab=7):
    scores = torch.full((beams,), float("-inf"))
    scores[0] = 0.0
    sequences = torch.zeros(beams, 1, dtype=torch.long)
    for _ in range(steps):
        onehot = nn.functional.one_hot(sequences[:, -1], vocab).float()
        candidates = scores[:, None] + model(onehot)
        candidates[:, 3] = float("-inf")  # a banned word
        scores, index = candidates.flatten().topk(beams)
        sequences = torch.cat([sequences[index // vocab], (index % vocab)[:, None]], dim=1)
    return sequences, scores


torch.manual_seed(0)
sequences, scores = beam_search(Next().eval(), 4, 6)
print(sequences.tolist(), [round(s, 3) for s in scores.tolist()])

# truth:
# {"healthy": true, "exit": 0}
