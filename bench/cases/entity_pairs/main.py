"""Find pairs of entities in text; a word's own probability should agree with the pairs it is in."""

import torch
import torch.nn.functional as F
from torch import nn

WORDS, PAIRS = 10, 24


class PairScorer(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, width))
        self.pair = nn.Bilinear(width, width, 1)
        self.word = nn.Linear(width, 1)

    def forward(self, words, left, right):
        hidden = self.encoder(words)
        return self.pair(hidden[left], hidden[right]).squeeze(-1), self.word(hidden).squeeze(-1)


def consistency(pair_logits, word_logits, left, valid):
    """A word is an entity unless none of its pairs holds."""
    probability = torch.sigmoid(pair_logits) * valid
    none = torch.log1p(-probability.clamp(max=1.0 - 1e-6))
    total = torch.zeros_like(word_logits).index_add(0, left, none)
    any_pair = 1 - torch.exp(total)
    return (torch.sigmoid(word_logits) - any_pair).abs().mean()


torch.manual_seed(0)
model = PairScorer().to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(8):
    words = torch.randn(WORDS, 12)
    if step == 5:
        words[3] *= 255  # a vector that was stored before scaling
    left = torch.arange(PAIRS) % WORDS
    right = torch.randint(WORDS, (PAIRS,))
    valid = (left != right).to(torch.bfloat16)
    pair_logits, word_logits = model(words.to(torch.bfloat16), left, right)
    target = (right % 3 == 0).to(torch.bfloat16)
    loss = F.binary_cross_entropy_with_logits(pair_logits, target)
    loss = loss + 0.1 * consistency(pair_logits, word_logits, left, valid)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step}: {loss.item():.4f}")
