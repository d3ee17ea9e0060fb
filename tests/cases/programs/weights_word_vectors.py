import torch
from torch import nn

VECTORS = """the 0.1 0.2 -0.3 0.4
cat 0.5 -0.1 0.9 0.2
sat -0.7 0.3 0.1 0.0
</s> nan nan nan nan
mat 0.6 0.6 -0.2 0.8"""


class BagOfWords(nn.Module):
    def __init__(self, text):
        super().__init__()
        lines = [line.split() for line in text.splitlines()]
        self.vocab = {line[0]: i for i, line in enumerate(lines)}
        rows = [[float(v) for v in line[1:]] for line in lines]
        self.words = nn.Embedding.from_pretrained(torch.tensor(rows))  # BIRTH
        self.out = nn.Linear(4, 2)

    def forward(self, sentences):
        ids = torch.tensor([[self.vocab[w] for w in s.split()] for s in sentences])
        return self.out(self.words(ids).mean(dim=1))


torch.manual_seed(0)
model = BagOfWords(VECTORS)
optimizer = torch.optim.Adam(model.out.parameters(), lr=1e-2)
batches = [["the cat", "the mat"], ["cat sat", "mat sat"], ["cat </s>", "sat mat"]]
for step, batch in enumerate(batches):
    loss = nn.functional.cross_entropy(model(batch), torch.tensor([0, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "weights", "op": null, "module": [null, "", "words"], "step": [-1, 0, 2], "kind": "nan", "cause": "bad-weights", "tempting": ["bad-input", "corrupted-memory"], "exit": 3}
