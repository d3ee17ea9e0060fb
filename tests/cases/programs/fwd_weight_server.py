import threading
import time

import torch
from torch import nn


class UnitLinear(nn.Module):
    def __init__(self, inp, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, inp))

    def forward(self, x):
        direction = self.weight / self.weight.norm(dim=1, keepdim=True)  # BIRTH
        return x @ direction.T


torch.manual_seed(0)
model = nn.Sequential(UnitLinear(4, 6), nn.Tanh(), nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
others = [torch.randn(6, 4) for _ in range(3)]
begin, begun = threading.Event(), threading.Event()


@torch.no_grad()
def pull_average():
    """Puts the average of all workers into the layer, one worker after the other."""
    begin.wait()
    own = model[0].weight.clone()
    model[0].weight.zero_()
    begun.set()
    for part in [own, *others]:
        time.sleep(0.1)  # the network
        model[0].weight.add_(part, alpha=0.25)


thread = threading.Thread(target=pull_average, daemon=True)
thread.start()
for step in range(6):
    if step == 4:
        begin.set()
        begun.wait()
    x, y = torch.randn(5, 4), torch.randint(0, 2, (5,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
thread.join()

# truth:
# {"phase": "forward", "op": "aten.div.Tensor", "module": "0", "step": 4, "kind": "nan", "cause": "data-race", "tempting": ["transient-fault", "divide-by-zero"], "exit": 3}
