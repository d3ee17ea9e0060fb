"""Tags names in sentences: an LSTM scores the tags, a random field chooses a consistent sequence."""

import torch
from torch import nn

torch.use_deterministic_algorithms(True)
TAGS = ["O", "B", "I"]


class CRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.start = nn.Parameter(torch.empty(tags))
        self.end = nn.Parameter(torch.empty(tags))
        self.transitions = nn.Parameter(torch.empty(tags, tags))
        nn.init.uniform_(self.start, -0.1, 0.1)
        nn.init.uniform_(self.transitions, -0.1, 0.1)

    def score(self, emissions, tags):
        total = self.start[tags[0]] + emissions[0, tags[0]]
        for i in range(1, len(tags)):
            total = total + self.transitions[tags[i - 1], tags[i]] + emissions[i, tags[i]]
        return total + self.end[tags[-1]]

    def partition(self, emissions):
        alpha = self.start + emissions[0]
        for emission in emissions[1:]:
            alpha = torch.logsumexp(alpha[:, None] + self.transitions + emission, dim=0)
        return torch.logsumexp(alpha + self.end, dim=0)

    def forward(self, emissions, tags):
        return self.partition(emissions) - self.score(emissions, tags)


class Tagger(nn.Module):
    def __init__(self, words=50, dim=16):
        super().__init__()
        self.words = nn.Embedding(words, dim)
        self.lstm = nn.LSTM(dim, dim, batch_first=True)
        self.emit = nn.Linear(dim, len(TAGS))
        self.crf = CRF(len(TAGS))

    def forward(self, sentence, tags):
        states, _ = self.lstm(self.words(sentence).unsqueeze(0))
        return self.crf(self.emit(states[0]), tags)


torch.manual_seed(0)
tagger = Tagger()
optimizer = torch.optim.Adam(tagger.parameters(), lr=0.01)
for step in range(4):
    sentence = torch.randint(0, 50, (6,))
    tags = (sentence % 7 == 0).long()
    loss = tagger(sentence, tags)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
