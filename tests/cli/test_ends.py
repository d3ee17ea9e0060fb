"""How a program, or a command, comes to its end when nothing of nanwatch's is behind it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from workshop import Workshop, environment

NAN_LIES_ABOUT = """
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rate = torch.nn.Linear(4, 3)

        def forward(self, x):
            rate = self.rate(x) - 5
            square = rate.square()
            {change}
            return square + rate

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("rate.log_()", "modified by an inplace operation"),
        ("rate = rate.log() @ torch.ones(3, 3).double()", "to have the same dtype"),
    ],
)
def test_an_error_that_no_value_can_cause(workshop: Workshop, change: str, says: str) -> None:
    """NaN lies about, and the program would have died with any numbers."""
    workshop.write("main.py", NAN_LIES_ABOUT.format(change=change))
    done = workshop.watched("main.py")
    assert says in done.stderr and done.returncode == 1
    assert "─" not in done.stderr and not list((workshop.runs / "incidents").glob("*"))


def test_an_error_that_the_values_have_caused(workshop: Workshop) -> None:
    workshop.write("main.py", NAN_LIES_ABOUT.format(change="torch.multinomial(rate.log(), 1)"))
    done = workshop.watched("main.py")
    assert "probability tensor contains" in done.stderr and done.returncode == 3


def test_a_reader_that_has_seen_enough() -> None:
    """`nanwatch explain | head`: no traceback."""
    with subprocess.Popen(
        [sys.executable, "-m", "nanwatch", "explain"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == ""
    assert running.returncode == 1


def test_a_folder_of_several_runs(workshop: Workshop) -> None:
    workshop.write("main.py", "import torch\n")
    workshop.nanwatch("run", "--dir", "all/first", "main.py")
    done = workshop.nanwatch("explain", "all")
    assert done.returncode == 2
    assert done.stderr.endswith("the latest for example: nanwatch explain all/first\n")
