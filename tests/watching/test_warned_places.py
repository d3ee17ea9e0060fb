"""A warning names the line of the program, watched or not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import warnings

import numpy as np
import torch
import torch.nn.functional as F


class Layer(torch.nn.Module):
    def forward(self, x):
        return torch.view_as_complex(x).to(torch.float32).sum()


x = torch.randn(3, requires_grad=True)
total = x.sum()
float(total)
locked = np.ones(3)
locked.flags.writeable = False
torch.from_numpy(locked)
F.softmax(x)
Layer()(torch.randn(2, 2))
with warnings.catch_warnings(record=True) as recorded:
    warnings.simplefilter("always")
    F.softmax(x)
print([(warning.filename, warning.lineno) for warning in recorded])
warnings.warn("the program's own")


def deprecated():
    warnings.warn("of its caller", stacklevel=2)


deprecated()
torch.range(0, 1)
"""


@pytest.mark.parametrize("audit", [[], ["--audit-seconds", "0", "--audit-share", "0"]])
def test_warnings_are_those_of_the_program_alone(tmp_path: Path, audit: list[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    watched = [sys.executable, "-m", "nanwatch", "run", "--dir", str(tmp_path / "run"), *audit, str(script)]
    plain, seen = (
        subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
        for command in ([sys.executable, str(script)], watched)
    )
    assert seen.returncode == plain.returncode == 0, seen.stderr
    assert seen.stdout == plain.stdout
    assert seen.stderr == plain.stderr
    assert plain.stderr.count("Warning: ") == 7
