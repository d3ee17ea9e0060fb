import torch
from torch import nn


def micro_batches():
    g = torch.Generator().manual_seed(2)
    for i in range(12):
        x = torch.randn(4, 5, generator=g)
        if i == 7:
            x = x * 40
        yield x, 3 * x[:, :1]


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**11)
for i, (x, y) in enumerate(micro_batches()):
    with torch.autocast("cpu", dtype=torch.float16):
        output = model(x)
    loss = nn.functional.mse_loss(output.float(), y)  # BIRTH
    scaler.scale(loss / 2).backward()
    if i % 2 == 0:  # the first half of a step: look at the size of the gradients
        scaler.unscale_(optimizer)
        print(i, round(nn.utils.clip_grad_norm_(model.parameters(), 5.0).item(), 4))
    else:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

# truth:
# {"phase": "backward", "op": "aten._to_copy.default", "module": null, "step": 3, "kind": "inf", "cause": "amp-misuse", "tempting": ["half-overflow", "bad-input"], "exit": 3}
