"""A program that is told to end while its report is being made ends with the report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from nanwatch.adapters.unhurried import unhurried

PROGRAM = """
import itertools
import os
import signal

import torch
from torch import nn

bad_calls = itertools.count(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, x):
        if (x < 0).any() and next(bad_calls) == 2:  # the replay: the launcher has lost patience
            os.kill(os.getpid(), signal.SIGTERM)
        return self.linear(torch.log(x))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.rand(5, 3) + 0.1
    if step == 2:
        x[1] = -1
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_the_report_is_finished_first(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    run = [sys.executable, "-m", "nanwatch", "run", "--dir", str(tmp_path / "run")]
    done = subprocess.run(
        [*run, "--audit-seconds", "0", "--audit-share", "0", str(script)], capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGTERM
    (file,) = (tmp_path / "run").glob("incidents/*/incident.json")
    incident = json.loads(file.read_text())
    assert (incident["step"], incident["birth"]["op"]) == (2, "aten.log.default")
    assert "invalid-domain" in done.stderr


def test_the_program_has_its_own_handler_back() -> None:
    came: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append("handled"))
    try:
        with unhurried():
            os.kill(os.getpid(), signal.SIGTERM)
            came.append("reported")
        assert came == ["reported", "handled"]
        os.kill(os.getpid(), signal.SIGTERM)
        assert came == ["reported", "handled", "handled"]
    finally:
        signal.signal(signal.SIGTERM, before)
