import torch
from torch import nn


class Writer(nn.Module):
    def __init__(self, vocab=12, dim=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.cell = nn.GRUCell(dim, dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, token, state):
        state = self.cell(self.embed(token), state)
        return self.head(state), state


def penalise(logits, history, alpha):
    counts = torch.zeros_like(logits).scatter_add_(1, history, torch.ones_like(history, dtype=logits.dtype))
    return logits - alpha * counts.log()  # BIRTH


@torch.no_grad()
def write(model, steps, alpha):
    token = torch.tensor([1, 2])
    state, history = torch.zeros(2, 8), token[:, None]
    for step in range(steps):
        logits, state = model(token, state)
        if step >= 2:
            logits = penalise(logits, history, alpha)
        token = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
        history = torch.cat([history, token[:, None]], dim=1)
        print(step, token.tolist())


torch.manual_seed(0)
write(Writer().eval(), 6, alpha=0.5)

# truth:
# {"phase": ["loss", "forward"], "op": "aten.log.default", "module": null, "step": 2, "kind": "inf", "samples": [0, 1], "cause": "log-of-zero", "tempting": ["invalid-probabilities"], "exit": 3}
