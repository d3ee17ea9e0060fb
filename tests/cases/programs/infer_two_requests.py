import threading
import time

import torch
from torch import nn


class Ranker(nn.Module):
    def __init__(self, items=6):
        super().__init__()
        self.user = nn.Linear(3, 4)
        self.items = nn.Parameter(torch.randn(items, 4))
        self.register_buffer("stock", torch.zeros(items))

    def prepare(self, in_stock, fetch):
        self.stock.fill_(float("-inf"))
        rows = fetch(in_stock)
        self.stock[rows] = 0.0

    def forward(self, x):
        scores = self.user(x) @ self.items.T + self.stock
        return torch.softmax(scores, dim=-1)  # BIRTH


def warehouse(delay):
    def fetch(rows):
        waiting.set()
        time.sleep(delay)
        return torch.tensor(rows)

    return fetch


def other_request():
    ranker.prepare([2, 5], warehouse(0.6))
    with torch.no_grad():
        ranker(torch.ones(1, 3))


torch.manual_seed(0)
ranker, waiting = Ranker().eval(), threading.Event()
with torch.no_grad():
    for request in range(4):
        ranker.prepare([0, 1, 4], warehouse(0.0))
        if request == 3:
            waiting.clear()
            other = threading.Thread(target=other_request, daemon=True)
            other.start()
            waiting.wait()
        print(request, ranker(torch.randn(2, 3)).argmax(-1).tolist())
other.join()

# truth:
# {"phase": "forward", "op": "aten._softmax.default", "module": "", "step": 3, "kind": "nan", "samples": [0, 1], "cause": "data-race", "tempting": ["transient-fault", "fully-masked-row"], "exit": 3}
