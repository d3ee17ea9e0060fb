"""Train a hidden Markov model by its forward algorithm in log space; most transitions are forbidden."""

import torch
from torch import nn

STATES, SOUNDS = 5, 8


class LeftToRight(nn.Module):
    """A state is kept or left for the next one; everything else has log probability -inf."""

    def __init__(self):
        super().__init__()
        self.stay = nn.Parameter(torch.zeros(STATES))
        self.sound = nn.Parameter(0.1 * torch.randn(STATES, SOUNDS))
        start = torch.full((STATES,), float("-inf"))
        start[0] = 0.0
        self.register_buffer("start", start)

    def transitions(self):
        table = torch.full((STATES, STATES), float("-inf"))
        rows = torch.arange(STATES)
        table[rows, rows] = nn.functional.logsigmoid(self.stay)
        table[rows[:-1], rows[1:]] = nn.functional.logsigmoid(-self.stay[:-1])
        return table

    def forward(self, sounds):
        emission = self.sound.log_softmax(dim=1)
        table = self.transitions()
        alpha = (self.start + emission[:, sounds[0]])[:1]
        for time in range(1, len(sounds)):
            reach = min(time + 1, STATES)
            before = nn.functional.pad(alpha, (0, reach - len(alpha)), value=float("-inf"))
            alpha = (
                torch.logsumexp(before[:, None] + table[:reach, :reach], dim=0)
                + emission[:reach, sounds[time]]
            )
        return torch.logsumexp(alpha, dim=0) / len(sounds)


def word(generator):
    """Each state makes its own sound two to four times."""
    repeats = torch.randint(2, 5, (STATES,), generator=generator)
    return torch.arange(STATES).repeat_interleave(repeats)


torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)
model = LeftToRight()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-2)
for step in range(15):
    loss = -torch.stack([model(word(generator)) for _ in range(4)]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")
