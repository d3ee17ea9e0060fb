import torch
from torch import nn


def inverse_snr(estimate, clean):
    noise = (estimate - clean).square().mean(dim=-1)
    signal = clean.square().mean(dim=-1)
    return noise / signal  # BIRTH


torch.manual_seed(0)
denoiser = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)).half()
optimizer = torch.optim.SGD(denoiser.parameters(), lr=1e-4)
for step in range(6):
    clean = torch.randn(4, 16)
    if step == 4:
        clean[2] *= 1e-4  # a very quiet recording
    noisy = clean + 0.1 * torch.randn(4, 16)
    loss = inverse_snr(denoiser(noisy.half()), clean.half()).float().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 3))

# truth:
# {"phase": "loss", "op": "aten.div.Tensor", "module": null, "step": 4, "kind": "inf", "samples": [2], "cause": "half-underflow", "tempting": ["divide-by-zero", "half-overflow"], "exit": 3}
