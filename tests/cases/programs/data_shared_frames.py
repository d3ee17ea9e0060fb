import threading
import time

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
frame = torch.rand(4, 6) + 0.1
turn = threading.Semaphore(0)


def camera(delays):
    """Overwrites the frame that is shown whenever a new one comes over the link."""
    g = torch.Generator().manual_seed(1)
    for delay in delays:
        turn.acquire()
        frame.zero_()
        for row in frame:
            time.sleep(delay)
            row.copy_(torch.rand(6, generator=g) + 0.1)


thread = threading.Thread(target=camera, args=([0.0, 0.0, 0.0, 0.15, 0.0],), daemon=True)
thread.start()
for step in range(5):
    turn.release()
    time.sleep(0.03)  # a frame every 30 ms
    x = frame / frame.sum(dim=1, keepdim=True)  # BIRTH
    loss = (model(x).squeeze(1) - 0.5).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 5))
thread.join()

# truth:
# {"phase": "data", "op": "aten.div.Tensor", "module": null, "step": 3, "kind": "nan", "samples": [0, 1, 2, 3], "cause": "data-race", "tempting": ["transient-fault", "divide-by-zero"], "exit": 3}
