import torch
from torch import nn

torch.manual_seed(0)
embedding = nn.Embedding(10, 4)
head = nn.Linear(4, 1)
params = list(embedding.parameters()) + list(head.parameters())
optimizer = torch.optim.AdamW(params, lr=1e-2, eps=0.0)
for step in range(3):
    tokens = torch.randint(0, 5, (6,))  # rows 5.. never seen: their gradient is exactly zero
    loss = head(embedding(tokens)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # BIRTH
    print(step, embedding.weight.isnan().any(dim=1).nonzero().flatten().tolist())

# truth:
# {"phase": "optimizer", "op": "aten.addcdiv_.default", "module": null, "step": 0, "kind": "nan", "cause": "bad-hyperparameter", "tempting": ["optimizer-state"], "exit": 3}
