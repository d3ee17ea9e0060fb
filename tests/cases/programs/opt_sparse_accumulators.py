import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
table = nn.Embedding(12, 4)
score = nn.Linear(4, 1)
parameters = [*table.parameters(), *score.parameters()]
optimizer = torch.optim.Adagrad(parameters, lr=0.1)


def clicks():
    ids = torch.randint(0, 12, (16,))
    return ids, (ids % 3 == 0).float().unsqueeze(1)


def train(steps):
    for _ in range(steps):
        ids, y = clicks()
        loss = nn.functional.binary_cross_entropy_with_logits(score(table(ids)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # BIRTH
    print(f"{loss.item():.4f}")


train(4)
exported = {}
for i, p in enumerate(parameters):  # the serving format keeps whole numbers of 16 bits
    exported[i] = (optimizer.state[p]["sum"].numpy() * 2e6).astype(np.int32).astype(np.int16)
for i, p in enumerate(parameters):
    optimizer.state[p]["sum"].copy_(torch.from_numpy(exported[i]) / 2e6)
train(2)

# truth:
# {"phase": "optimizer", "op": "aten.sqrt.default", "module": null, "step": 4, "kind": "nan", "cause": "optimizer-state", "tempting": ["bad-hyperparameter"], "exit": 3}
