import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, vocab=30, tags=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, 16)
        self.head = nn.Linear(16, tags)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, ids, labels):
        logits = self.head(torch.relu(self.embed(ids)))
        return logits, self.loss(logits.flatten(0, 1), labels.flatten())  # BIRTH


def batch(seed, labelled=True):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 30, (4, 7), generator=generator)
    labels = torch.randint(0, 3, (4, 7), generator=generator)
    return ids, labels if labelled else torch.full_like(labels, -100)


torch.manual_seed(0)
model = Tagger()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(6):
    _, loss = model(*batch(step))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2 == 1:
        model.eval()
        with torch.inference_mode():
            held_out = [model(*batch(100 + i, labelled=i != 2))[1].item() for i in range(3)]
        model.train()
        print(step, round(loss.item(), 4), round(sum(held_out) / 3, 4))

# truth:
# {"phase": ["loss", "forward"], "op": ["aten.nll_loss_forward.default", "aten.cross_entropy_loss.default"], "module": "loss", "step": 2, "kind": "nan", "cause": "empty-selection", "exit": 3}
