"""Programs that a watch was in the way of: watched, they do what they do alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SHARED = """
import hashlib

import torch
import torch.nn.functional as F
from torch import nn


def show(*things):
    tensors = [t for m in things for t in (m.parameters() if isinstance(m, nn.Module) else [m])]
    print(hashlib.sha256(b"".join(t.detach().contiguous().numpy().tobytes() for t in tensors)).hexdigest())


torch.manual_seed(0)
"""

PROGRAMS = {
    "a module that calls itself nearly as deep as Python allows": """
class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x, depth):
        return self(x, depth - 1) + 1 if depth else self.layer(x)


model = Nested()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(2, 3), 225).square().mean().backward()
    optimizer.step()
show(model)
""",
    "a gradient that is a tensor of zeros without memory": """
w = torch.randn(6, requires_grad=True)
v = torch.randn(6, requires_grad=True)
optimizer = torch.optim.SGD([w, v], lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = F.l1_loss(torch.cat([w, v]), torch.zeros(12))
    (first,) = torch.autograd.grad(loss, w, create_graph=True)
    (loss + first.sum()).backward()
    for p in (w, v):
        p.grad = torch._efficientzerotensor(12)[3:9] if step == 1 else p.grad
    optimizer.step()
show(w, v)
""",
    "a wrapper of the program's around a function of torch's": """
calls = []
original = F.cross_entropy


def halved(*args, **kwargs):
    calls.append(1)
    return original(*args, **kwargs) / 2


F.cross_entropy = halved
backward = torch.Tensor.backward
torch.Tensor.backward = lambda self, *a, **k: (calls.append(2), backward(self, *a, **k))[1]
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    F.cross_entropy(model(torch.randn(5, 4)), torch.tensor([0, 1, 2, 0, 1])).backward()
    optimizer.step()
print(calls)
show(model)
""",
    "derivatives inside a step": """
x = torch.rand(6, requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.01)
for step in range(4):
    optimizer.zero_grad()
    (slope,) = torch.autograd.grad(x.prod() + x.cumprod(0).sum(), x, create_graph=True)
    slope.square().sum().backward()
    optimizer.step()
show(x)
""",
    "forbidden logits out of a reentrant checkpoint": """
from torch.utils.checkpoint import checkpoint


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 5)

    def forward(self, x):
        return self.linear(x).masked_fill(torch.tensor([False, False, True, False, False]), float("-inf"))


body, head = nn.Linear(4, 4), Head()
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    logits = checkpoint(head, torch.tanh(body(torch.randn(3, 4))), use_reentrant=True)
    F.cross_entropy(logits, torch.tensor([0, 1, 3])).backward()
    optimizer.step()
show(body, head)
""",
    "tensors of an own class that refuses to be asked": """
class Strict(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ in ("is_inference", "numel", "element_size"):
            raise TypeError(f"unsupported: {function.__name__}")
        return super().__torch_function__(function, types, args, kwargs or {})


model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    (model(torch.randn(3, 4).as_subclass(Strict)) * 2).square().mean().backward()
    optimizer.step()
show(model)
""",
    "a model that says in a list what it learns": """
class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def parameters(self, recurse=True):
        return list(super().parameters(recurse))

    def forward(self, x):
        return self.linear(x)


model, smooth = Listed(), nn.SmoothL1Loss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    smooth(model(torch.randn(3, 4)), torch.zeros(3, 2)).backward()
    optimizer.step()
show(model)
""",
    "a batch that refers to a cache which another thread fills": """
import sys
import threading

sys.setswitchinterval(1e-5)


class Data:
    def __init__(self):
        self.cache = {}


class Batch:
    def __init__(self, x, data):
        self.x, self.data = x, data


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, batch):
        return self.linear(batch.x)


def fill():
    number = 0
    while not done:
        data.cache[number] = (number, [1, 2, 3])
        number += 1
        if number % 400 == 0:
            data.cache = {}


data, done = Data(), False
filling = threading.Thread(target=fill)
filling.start()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(300):
    optimizer.zero_grad()
    model(Batch(torch.randn(3, 4), data)).square().mean().backward()
    optimizer.step()
done = True
filling.join()
show(model)
""",
    "a module of the program's with the name of one of Python's": """
import statistics

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(3, 4)).square().mean().backward()
optimizer.step()
print(statistics.OWN)
show(model)
""",
}


@pytest.mark.parametrize("audit", [[], ["--audit-seconds", "0", "--audit-share", "0"]], ids=["audit", "none"])
@pytest.mark.parametrize("what", PROGRAMS)
def test_the_same_as_alone(tmp_path: Path, what: str, audit: list[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(SHARED + PROGRAMS[what])
    (tmp_path / "statistics.py").write_text("OWN = True\n")
    watched = [sys.executable, "-m", "nanwatch", "run", "--dir", str(tmp_path / "run"), *audit, str(script)]
    plain, seen = (
        subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
        for command in ([sys.executable, str(script)], watched)
    )
    assert plain.returncode == 0, plain.stderr
    assert (seen.returncode, seen.stdout, seen.stderr) == (0, plain.stdout, plain.stderr)
