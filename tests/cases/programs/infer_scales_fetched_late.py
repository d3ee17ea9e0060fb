import threading
import time

import torch
from torch import nn


class Offloaded(nn.Module):
    """While a layer runs, a thread brings the scales of the next one into the buffer."""

    def __init__(self, layers=4, dim=8):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(dim, dim) for _ in range(layers)])
        self.scales = [torch.rand(dim) + 0.5 for _ in range(layers)]
        self.buffer = self.scales[0].clone()

    def load(self, layer, ready):
        self.buffer.zero_()
        time.sleep(0.3)
        self.buffer.copy_(self.scales[layer])
        ready.set()

    def forward(self, x, wait=True):
        for n, layer in enumerate(self.layers):
            ready = threading.Event()
            threading.Thread(target=self.load, args=(n, ready)).start()
            if wait:
                ready.wait()
            else:
                time.sleep(0.05)
            x = torch.tanh(layer(x) / self.buffer)  # BIRTH
            ready.wait()
        return x / x.norm(dim=1, keepdim=True)


torch.manual_seed(0)
model = Offloaded().eval()
with torch.no_grad():
    for call in range(4):
        x = torch.randn(3, 8)
        if call == 2:
            x[1] = 0
            model.layers[0].bias.zero_()
        print(call, model(x, wait=call < 2).mean().item())

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "", "step": 2, "kind": ["nan", "inf"], "cause": "data-race", "tempting": ["divide-by-zero", "transient-fault"], "exit": 3}
