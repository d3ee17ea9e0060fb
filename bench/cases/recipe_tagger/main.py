"""Tag the words of recipe lines as amount, unit or food; a word is the mean of its word pieces."""

import torch
from torch import nn
from torch.utils.data import DataLoader

LINES = [
    "two cups of white flour", "one pinch of sea salt", "three ripe red tomatoes sliced",
    "half liter of cold water", "one spoon of brown sugar", "four large eggs well beaten",
    "some leaves of fresh basil", "two  onions finely chopped", "one clove of mild garlic",
    "ten grams of dried yeast", "two slices of rye bread", "one jar of sour cream",
]  # fmt: skip
TAGS = {"two": 0, "one": 0, "three": 0, "half": 0, "four": 0, "ten": 0, "some": 0, "cups": 1, "pinch": 1}
PIECES = {}


def pieces_of(word):
    """Ids of the two-letter pieces of a word, 0 is padding."""
    return [PIECES.setdefault(word[i : i + 2], len(PIECES) + 1) for i in range(0, len(word), 2)]


def collate(lines):
    words = [line.split(" ")[:5] for line in lines]
    longest = max(len(pieces_of(w)) for line in words for w in line)
    ids = torch.zeros(len(words), 5, longest, dtype=torch.long)
    tags = torch.full((len(words), 5), 2)
    for row, line in enumerate(words):
        for column, word in enumerate(line):
            piece_ids = pieces_of(word)
            ids[row, column, : len(piece_ids)] = torch.tensor(piece_ids, dtype=torch.long)
            tags[row, column] = TAGS.get(word, 2)
    return ids, tags


class WordEmbedder(nn.Module):
    def __init__(self, pieces, width):
        super().__init__()
        self.pieces = nn.Embedding(pieces, width, padding_idx=0)

    def forward(self, ids):
        total = self.pieces(ids).sum(dim=2)
        count = (ids != 0).sum(dim=2, keepdim=True)
        return total / count


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedder = WordEmbedder(200, 24)
        self.encoder = nn.GRU(24, 16, batch_first=True, bidirectional=True)
        self.tag = nn.Linear(32, 3)

    def forward(self, ids):
        states, _ = self.encoder(self.embedder(ids))
        return self.tag(states)


torch.manual_seed(0)
tagger = Tagger()
optimizer = torch.optim.AdamW(tagger.parameters(), lr=5e-3)
for epoch in range(2):
    for ids, tags in DataLoader(LINES, batch_size=3, collate_fn=collate):
        loss = nn.functional.cross_entropy(tagger(ids).flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, round(loss.item(), 4))
