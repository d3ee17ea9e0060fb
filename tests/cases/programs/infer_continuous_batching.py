import torch
from torch import nn


class Slots:
    """Keys and values of the requests that are being served, one slot each."""

    def __init__(self, slots, longest, dim):
        self.keys, self.values = torch.zeros(2, slots, longest, dim)
        self.length = torch.zeros(slots, dtype=torch.long)
        self.mask = torch.full((slots, longest), float("-inf"))

    def append(self, k, v):
        slots = torch.arange(len(k))
        self.keys[slots, self.length], self.values[slots, self.length] = k, v
        self.mask[slots, self.length] = 0.0
        self.length += 1

    def replace(self, slot, history):
        n = len(history)
        self.keys[slot, :n] = self.values[slot, :n] = history
        self.length[slot] = n
        self.mask[slot] = float("-inf")


class Decoder(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x, slots):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = torch.einsum("bd,btd->bt", q, slots.keys) + slots.mask
        weights = scores.softmax(dim=-1)  # BIRTH
        out = torch.einsum("bt,btd->bd", weights, slots.values)
        slots.append(k, v)
        return out + v


torch.manual_seed(0)
decoder, slots = Decoder().eval(), Slots(3, 12, 6)
with torch.no_grad():
    slots.append(torch.randn(3, 6), torch.randn(3, 6))
    x = torch.randn(3, 6)
    for token in range(6):
        if token == 4:
            slots.replace(1, torch.randn(2, 6))  # the request in slot 1 is done, the next one moves in
        x = decoder(x, slots)
        print(token, slots.length.tolist(), round(x.norm().item(), 3))

# truth:
# {"phase": "forward", "op": "aten._softmax.default", "module": "", "step": 4, "kind": "nan", "samples": [1], "cause": "stale-copy", "also": ["fully-masked-row"], "exit": 3}
