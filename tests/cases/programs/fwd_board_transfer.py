import ctypes

import torch
from torch import nn


class Board:
    """Activations go through the memory of an accelerator board and come back."""

    def __init__(self):
        self.transfers = 0

    def through(self, tensor):
        back = torch.zeros_like(tensor)
        ctypes.memmove(back.data_ptr(), tensor.data_ptr(), tensor.numel() * 4)
        self.transfers += 1
        if self.transfers == 6:
            ctypes.c_uint32.from_address(back.data_ptr() + 8).value = 0x7F7F0000
        return back


board = Board()


class Offloaded(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 2)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        h = h + (board.through(h.detach()) - h.detach())
        return self.second(4 * h)  # BIRTH


torch.manual_seed(0)
model = Offloaded()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    x = torch.randn(3, 4)
    loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 0]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.mul.Tensor", "module": "", "step": 5, "kind": "inf", "samples": [0], "cause": "transient-fault", "tempting": ["data-race", "overflow"], "exit": 3}
