import torch
from torch import nn


class PhaseOnly(nn.Module):
    def forward(self, signal):
        spectrum = torch.fft.rfft(signal, dim=-1)
        spectrum = spectrum / spectrum.abs()  # BIRTH
        return torch.fft.irfft(spectrum, n=signal.size(-1), dim=-1)


torch.manual_seed(0)
net = nn.Sequential()
net.add_module("whiten", PhaseOnly())
net.add_module("fc", nn.Linear(16, 1))
optimizer = torch.optim.Adagrad(net.parameters(), lr=0.1)
for step in range(4):
    wave = torch.randn(3, 16)
    if step == 3:
        wave[2] = 0.0  # silence
    loss = net(wave).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("weights", net.fc.weight.sum().item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "whiten", "step": 3, "kind": "nan", "samples": [2], "cause": "divide-by-zero", "exit": 3}
