import torch
from torch import nn

torch.use_deterministic_algorithms(True)


class Encoder(nn.Module):
    def __init__(self, vocab=14, dim=8, longest=12):
        super().__init__()
        self.tokens = nn.Embedding(vocab, dim)
        self.places = nn.Parameter(torch.empty(longest, dim))  # BIRTH
        self.mix = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, 3)
        nn.init.xavier_uniform_(self.mix.weight)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids):
        h = self.tokens(ids) + self.places[: ids.size(1)]
        return self.out(self.mix(h).relu().amax(dim=1))


torch.manual_seed(0)
encoder = Encoder()
optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
for step in range(3):
    ids, labels = torch.randint(0, 14, (4, 9)), torch.randint(0, 3, (4,))
    loss = nn.functional.cross_entropy(encoder(ids), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "weights", "op": [null, "aten.empty.memory_format"], "module": [null, ""], "step": [-1, 0], "kind": "nan", "cause": "uninitialised-memory", "tempting": ["bad-weights"], "exit": 3}
