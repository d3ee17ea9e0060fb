import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
total = 6


def anneal(step):
    """Longer and longer averages towards the end of the run."""
    for group in optimizer.param_groups:
        group["betas"] = (0.9, 0.99 + 0.01 * step / (total - 1))


for step in range(total):
    anneal(step)
    ids = torch.randint(0, 8, (10,))
    loss = nn.functional.cross_entropy(model(ids), ids % 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # BIRTH
    print(step, loss.item())

# truth:
# {"phase": "optimizer", "op": "aten.div.Tensor", "module": null, "step": 5, "kind": "nan", "cause": "bad-hyperparameter", "tempting": ["optimizer-state", "divide-by-zero"], "exit": 3}
