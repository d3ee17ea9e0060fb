import torch
from torch import nn


class Captioner(nn.Module):
    """Log-probabilities of the next word, from the picture and the last word."""

    def __init__(self, words=14, dim=12):
        super().__init__()
        self.picture = nn.Linear(6, dim)
        self.word = nn.Embedding(words, dim)
        self.out = nn.Linear(dim, words)

    def forward(self, picture, last):
        hidden = torch.tanh(self.picture(picture) + self.word(last))
        return (6 * self.out(hidden)).log_softmax(dim=-1)


class BeamSearch:
    def __init__(self, model, beams, length):
        self.model, self.beams, self.length = model, beams, length
        # In the first step all beams are equal: only the first one may be continued.
        self.first_step = torch.full((beams, 1), float("inf"))
        self.first_step[0] = 1.0

    @torch.no_grad()
    def __call__(self, picture):
        sequences = torch.zeros(self.beams, 1, dtype=torch.long)
        totals = torch.zeros(self.beams, 1)
        for step in range(self.length):
            scores = totals + self.model(picture.expand(self.beams, -1), sequences[:, -1])
            if step == 0:
                scores = scores * self.first_step
            best, flat = scores.flatten().topk(self.beams)
            beam, word = flat // scores.size(1), flat % scores.size(1)
            sequences = torch.cat([sequences[beam], word[:, None]], dim=1)
            totals = best[:, None]
        return sequences[:, 1:], totals.squeeze(1) / self.length


torch.manual_seed(2)
model = Captioner().eval()
search = BeamSearch(model, beams=3, length=4)
pictures = torch.randn(4, 1, 6)
with torch.no_grad():
    # Trained on thousands of pictures of this kind, the model has no doubt about the first word.
    seen = pictures[2, 0] @ model.picture.weight.T + model.picture.bias + model.word.weight[0]
    model.out.weight[5] += 1.5 * torch.tanh(seen)
for number, picture in enumerate(reversed(pictures)):
    captions, scores = search(picture)
    chosen = torch.multinomial(scores.softmax(dim=0), 1).item()
    print(f"picture {number}: {captions[chosen].tolist()}  {scores[chosen].item():.3f}")
