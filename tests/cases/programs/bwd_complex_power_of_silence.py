import torch
from torch import nn


class CompressedSpectrum(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(8))
        self.out = nn.Linear(5, 1)

    def forward(self, wave):
        spectrum = torch.fft.rfft(wave * self.gain)
        compressed = spectrum**0.3  # BIRTH
        return self.out(compressed.real + compressed.imag)


torch.manual_seed(0)
net = CompressedSpectrum()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for i in range(4):
    wave = torch.randn(3, 8)
    if i == 2:
        wave[1] = 0
    loss = net(wave).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, loss.item())

# truth:
# {"phase": "backward", "op": "aten.pow.Tensor_Scalar", "module": "", "step": 2, "kind": "nan", "samples": [1], "cause": "singular-gradient", "exit": 3}
