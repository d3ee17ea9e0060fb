import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 64))
model = model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
counts = torch.zeros(64).pin_memory()
for step in range(4):
    x = torch.randn(8192, 1024, device="cuda")
    logits = model(x)
    chosen = nn.functional.softmax(logits.detach() * 50, dim=-1).sum(dim=0)
    counts.copy_(chosen + 1, non_blocking=True)
    share = counts / counts.sum()  # BIRTH
    weight = (1 / (64 * share)).cuda()
    loss = (logits.softmax(-1) * weight).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    counts.zero_()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.div.Tensor", "module": null, "step": 1, "kind": "nan", "cause": "transfer-race", "tempting": ["divide-by-zero", "empty-selection"], "needs": "cuda", "exit": 3}
