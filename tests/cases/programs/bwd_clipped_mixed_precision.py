import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv1d(2, 6, 3, padding=1), nn.GELU(), nn.Conv1d(6, 1, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1)
for step in range(20):
    signal = torch.randn(3, 2, 16)
    target = signal.sum(1, keepdim=True).cumsum(-1)
    with torch.autocast("cpu", dtype=torch.float16):
        output = model(signal)  # BIRTH
        error = output - target
    loss = error.square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scaler.update()
    if step % 4 == 0:
        print(step, round(loss.item(), 2), round(norm.item(), 2))

# truth:
# {"phase": "backward", "op": "aten.convolution_backward.default", "module": "2", "step": 3, "kind": "inf", "cause": "amp-misuse", "tempting": ["half-overflow"], "exit": 3}
