import torch
from torch import nn

torch.manual_seed(0)


class LM(nn.Module):
    def __init__(self, vocab=17, dim=12):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.head(self.embed(ids))


model = LM()
criterion = nn.CrossEntropyLoss(ignore_index=-100)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(5):
    ids = torch.randint(0, 17, (2, 6))
    labels = ids.clone()
    labels[:, : 6 if step == 3 else 2] = -100  # the prompt filled the whole window
    logits = model(ids)
    loss = criterion(logits.flatten(0, 1), labels.flatten())  # BIRTH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.nll_loss_forward.default", "module": [null, ""], "step": 3, "kind": "nan", "cause": "empty-selection", "exit": 3}
