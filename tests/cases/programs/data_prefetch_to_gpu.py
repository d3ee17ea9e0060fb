import torch
from torch import nn


class Prefetcher:
    """Copies the next batch to the GPU while the model works on this one."""

    def __init__(self, batches):
        self.batches = iter(batches)
        self.stream = torch.cuda.Stream()
        self.slots = [torch.full((4096, 8192), float("nan"), device="cuda") for _ in range(2)]
        self.turn = 0
        torch.cuda.synchronize()

    def __iter__(self):
        for batch in self.batches:
            slot = self.slots[self.turn]
            with torch.cuda.stream(self.stream):
                slot.copy_(batch, non_blocking=True)  # BIRTH
            self.turn = 1 - self.turn
            yield slot


torch.manual_seed(0)
batches = [torch.randn(4096, 8192).pin_memory() for _ in range(2)]
model = nn.Sequential(nn.Linear(8192, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
with torch.no_grad():
    model(torch.zeros(4096, 8192, device="cuda"))  # warm up
for step, x in enumerate(Prefetcher(batches)):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "data", "op": [null, "aten.copy_.default"], "module": null, "step": 0, "kind": "nan", "cause": "transfer-race", "tempting": ["uninitialised-memory", "bad-input"], "needs": "cuda", "exit": 3}
