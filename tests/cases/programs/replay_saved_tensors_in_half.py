import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)


def pack(tensor):
    if tensor.dtype is torch.float32:
        return tensor.half()  # BIRTH
    return tensor


def unpack(tensor):
    return tensor.float() if tensor.dtype is torch.float16 else tensor


for step in range(5):
    x = torch.randn(3, 4)
    if step == 3:
        x[1, 2] = 1e5
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": ["forward", "backward"], "op": "aten._to_copy.default", "module": [null, "", "0"], "step": 3, "kind": "inf", "cause": "half-overflow", "exit": 3}
