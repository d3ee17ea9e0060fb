"""Sorts support tickets into four queues with a small transformer, as they come in."""

import torch
from torch import nn

WORDS = {
    w: i
    for i, w in enumerate(
        "<pad> login fails after update invoice is wrong please refund slow page error".split()
    )
}


def encode(ticket, length=8):
    known = [WORDS[w] for w in ticket.lower().split() if w in WORDS][:length]
    return known + [0] * (length - len(known))


class Triage(nn.Module):
    def __init__(self, dim=32, depth=3):
        super().__init__()
        self.words = nn.Embedding(len(WORDS), dim, padding_idx=0)
        self.positions = nn.Parameter(torch.randn(8, dim) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, nhead=4, dim_feedforward=64, batch_first=True)
            for _ in range(depth)
        )
        self.queue = nn.Linear(dim, 4)

    def forward(self, ids):
        empty = ids == 0
        x = self.words(ids) + self.positions
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=empty)
        return self.queue(x[:, 0])


INBOX = [
    ["Login fails after update", "Invoice is wrong", "slow page"],
    ["please refund invoice", "page error after login", "update fails"],
    ["refund please", "是否可以退款？", "error"],
    ["slow login", "invoice error", "update is slow"],
]

torch.manual_seed(0)
model = Triage().eval()
with torch.inference_mode():
    for hour, tickets in enumerate(INBOX):
        probability = model(torch.tensor([encode(t) for t in tickets])).softmax(dim=-1)
        best = probability.max(dim=-1)
        print(hour, best.indices.tolist(), [f"{p:.3f}" for p in best.values.tolist()])
