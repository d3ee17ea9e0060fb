import torch
from torch import nn

torch.manual_seed(0)
model = nn.GRU(3, 5, batch_first=True)
readout = nn.Linear(5, 1)
parameters = [*model.parameters(), *readout.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=1e-3)


def uptime(step):
    """What happens to a bank of memory in a week."""
    if step == 3:
        bits = optimizer.state[parameters[1]]["exp_avg_sq"].numpy().view("uint32")
        bits[6, 2] ^= 1 << 31


for step in range(6):
    series = torch.randn(4, 7, 3)
    states, _ = model(series)
    loss = nn.functional.mse_loss(readout(states[:, -1]), series[:, -1].sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # BIRTH
    uptime(step)
    print(step, loss.item())

# truth:
# {"phase": "optimizer", "op": "aten.sqrt.default", "module": null, "step": 4, "kind": "nan", "cause": "corrupted-memory", "also": ["optimizer-state"], "exit": 3}
