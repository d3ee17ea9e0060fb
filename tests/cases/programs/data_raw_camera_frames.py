import torch
from torch import nn


def recorded(n, camera):
    g = torch.Generator().manual_seed(camera)
    kind = torch.float32 if camera == 0 else torch.int16  # the second camera is newer
    values = torch.rand(n, generator=g) * 2 - 1
    if kind == torch.int16:
        values = (values * 2).clamp(-1, 1) * 32767
    return bytearray(values.to(kind).numpy().tobytes())


def frames(camera):
    stream = recorded(4 * 36 * (1 if camera == 0 else 2), camera)
    return torch.frombuffer(stream, dtype=torch.float32).view(4, 1, 6, 6)  # BIRTH


torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, camera in enumerate([0, 0, 0, 1, 0]):
    loss = nn.functional.cross_entropy(model(frames(camera)), torch.tensor([0, 1, 0, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "data", "op": null, "module": null, "step": 3, "kind": "nan", "cause": "bad-input", "tempting": ["running-stats"], "exit": 3}
