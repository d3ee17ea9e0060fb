import torch
from torch import nn


class WordPieces:
    """Cuts words into pieces of three letters."""

    def __call__(self, words):
        pieces, offsets = [], []
        for word in words:
            cut = [word[i : i + 3] for i in range(0, len(word), 3)]
            offsets.append((len(pieces), len(pieces) + len(cut)))
            pieces += cut
        return [sum(map(ord, piece)) % 97 for piece in pieces], offsets


class WordEmbedder(nn.Module):
    """The vector of a word is the mean of the vectors of its pieces."""

    def __init__(self, dim):
        super().__init__()
        self.pieces = nn.Embedding(97, dim)
        self.mixer = nn.Linear(dim, dim)

    def forward(self, ids, offsets):
        vectors = torch.tanh(self.mixer(self.pieces(ids)))
        position = torch.arange(len(ids))
        inside = (position >= offsets[:, :1]) & (position < offsets[:, 1:])
        length = inside.sum(dim=1, keepdim=True)
        mean = inside.float() @ vectors / length
        return mean.masked_fill(length == 0, 0.0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedder = WordEmbedder(16)
        self.context = nn.LSTM(16, 16, bidirectional=True)
        self.head = nn.Linear(32, 3)

    def forward(self, ids, offsets):
        return self.head(self.context(self.embedder(ids, offsets))[0])


SENTENCES = [
    ("the kettle in Oslo was boiling".split(), [0, 0, 0, 1, 0, 0]),
    ("Ada wrote from London".split(), [2, 0, 0, 1]),
    ("see page 3 ".split(" "), [0, 0, 0, 0]),
    ("Grace left Boston".split(), [2, 0, 1]),
]

torch.manual_seed(0)
cut, model = WordPieces(), Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step, (words, tags) in enumerate(SENTENCES):
    ids, offsets = cut(words)
    logits = model(torch.tensor(ids), torch.tensor(offsets))
    loss = nn.functional.cross_entropy(logits, torch.tensor(tags))
    optimizer.zero_grad()
    loss.backward()
    print(step, round(loss.item(), 4), model.head.weight.grad.norm().item())
    optimizer.step()
