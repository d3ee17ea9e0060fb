"""Remedies are tried on the step that failed: the edit is run, not only shown."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from workshop import Workshop

import nanwatch
import nanwatch.explain.diagnose as diagnosing
from nanwatch.explain.remedies import offer
from nanwatch.explain.remedies.repairs import REPAIRS
from nanwatch.explain.remedies.settings import SETTINGS
from nanwatch.explain.remedies.words import EDITS
from nanwatch.records import Cause, Remedy

Offered = Callable[..., dict[str, Remedy]]

MODEL = """
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 4)

        def forward(self, x):
            h = self.linear(x)
            return {forward}

    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(3):
        x = torch.randn(5, 3)
        if step == 2:
            x[3] = 0.0
        out = model(x)
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offered:
    """Runs a program in this process and gives the remedies of these ids for its incident."""

    def run(source: str, *ids: str) -> dict[str, Remedy]:
        found: list[Remedy] = []

        def diagnose(case: Any) -> diagnosing.Diagnosis:
            found.extend(offer(case, *ids))
            return diagnosing.Diagnosis(Cause())

        monkeypatch.setattr(diagnosing, "diagnose", diagnose)
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(source))
        code = compile(path.read_text(), str(path), "exec")
        with pytest.raises(nanwatch.NonFiniteError), nanwatch.watch(dir=tmp_path / "run"):
            exec(code, {"__name__": "__main__"})
        return {remedy.id: remedy for remedy in found}

    return run


def changed_lines(remedy: Remedy) -> list[str]:
    assert remedy.edit is not None
    return [line for line in remedy.edit.splitlines()[2:] if line.startswith(("-", "+"))]


IN_A_MODULE = [
    ("clamp-divisor", "h.sum(1) / x.abs().sum(1)", "x.abs().sum(1).clamp_min(1e-08)"),
    ("clamp-divisor", "h.sum(1) * (1 / x.abs().sum(1))", "1 / x.abs().sum(1).clamp_min(1e-08)"),
    (
        "where-not-product",
        "((x != 0).float() * x.masked_fill(x == 0, float('inf'))).sum(1) + h.sum(1)",
        "torch.where((x != 0).float() == 0, 0.0, x.masked_fill(x == 0, float('inf')))",
    ),
    ("clamp-log", "torch.log(x.abs().sum(1)) + h.sum(1)", "torch.log(x.abs().sum(1).clamp_min(1e-08))"),
    ("eps-inside-sqrt", "(h * x.abs().sum(1, True)).square().sum(1).sqrt()", "+ 1e-08).sqrt()"),
    ("clamp-domain", "torch.acos(x.abs().sum(1) * 0 + 2.0) + h.sum(1)", ".clamp(-0.999999, 0.999999)"),
    (
        "clamp-domain",
        "torch.asin((h.sum(1) * 0 + 1.0).clamp(-1.0, 1.0)) + h.sum(1)",
        ".clamp(-0.999999, 0.999999))",
    ),
    ("clamp-domain", "torch.acosh(x.abs().sum(1) * 0 + 0.5) + h.sum(1)", ".clamp_min(1.000001)"),
    ("bounded-exp", "torch.exp(h.sum(1).abs() + (x.abs().sum(1) == 0) * 200)", ".clamp(max=20))"),
    ("guarded-mean", "h.mean(1) + x[x.abs() > 100].mean()", ".numel(), 1)"),
]


@pytest.mark.parametrize(("identity", "forward", "expected"), IN_A_MODULE, ids=lambda v: str(v)[:20])
def test_an_edit_of_a_model_is_run(offered: Offered, identity: str, forward: str, expected: str) -> None:
    remedy = offered(MODEL.format(forward=forward, loss="out.square().mean()"), identity)[identity]
    assert remedy.verified is True
    before, after = changed_lines(remedy)
    assert forward in before and expected in after


def test_an_edit_under_which_the_op_still_fails_is_not_offered(offered: Offered) -> None:
    """Infinity in the place of NaN, and a quotient by infinity is 0: finite, and as wrong as before."""
    forward = "h.sum(1) / (x.abs().sum(1) / (x[:, 0] * 0).abs())"
    assert not offered(MODEL.format(forward=forward, loss="out.square().mean()"), "clamp-domain")


def test_what_does_not_fit_the_op_is_not_offered(offered: Offered) -> None:
    """A length is no count, a square has no domain to keep to, labels are no divisor."""
    lengths = MODEL.format(forward="h.sum(1) / x.norm(dim=1)", loss="out.square().mean()")
    assert set(offered(lengths, "max-with-one", "clamp-divisor", "eps-inside-sqrt")) == {"clamp-divisor"}
    squares = MODEL.format(
        forward="(h.sum(1) - torch.where(x.sum(1) == 0, float('nan'), 0.0)) ** 2",
        loss="torch.where(out.isnan(), 0.0, out).mean()",
    )
    assert not offered(squares, "clamp-domain", "eps-inside-sqrt")
    labels = MODEL.format(
        forward="h", loss="F.cross_entropy(out, torch.full((5,), -100 if step == 2 else 1))"
    )
    assert not offered(labels, "clamp-divisor", "max-with-one")


def test_an_edit_that_changes_a_loss_that_was_fine_is_not_offered(offered: Offered) -> None:
    """The gradient is finite then, and of another function."""
    error = "(out.sum(1) - torch.tensor([0.0, 0.0, 0.0, float('nan'), 0.0])) ** (2 + 0 * step)"
    loss = f"torch.where(torch.arange(5) == 3, 0.0, {error}).mean()"
    assert not offered(MODEL.format(forward="h", loss=loss), "clamp-domain")


AT_THE_TOP = [
    ("clamp-divisor", "(out.sum(1) / x.abs().sum(1)).mean()", ".clamp_min(1e-08)"),
    ("clamp-log", "(out.sum(1) + x.abs().sum(1).log()).mean()", ".clamp_min(1e-08).log()"),
    (
        "guarded-mean",
        "F.cross_entropy(out, torch.full((5,), -100 if step == 2 else 1))",
        'reduction="sum") / (torch.full((5,), -100 if step == 2 else 1) != -100).sum().clamp_min(1)',
    ),
]


@pytest.mark.parametrize(("identity", "loss", "expected"), AT_THE_TOP, ids=lambda v: str(v)[:20])
def test_an_edit_at_the_top_of_a_script_is_run(
    offered: Offered, identity: str, loss: str, expected: str
) -> None:
    remedy = offered(MODEL.format(forward="h", loss=loss), identity)[identity]
    assert remedy.verified is True
    assert expected in changed_lines(remedy)[1]


def test_a_masked_row_gives_zeros_and_the_others_stay(offered: Offered) -> None:
    source = """
        import torch
        from torch import nn

        class Pool(nn.Module):
            def __init__(self):
                super().__init__()
                self.score = nn.Linear(3, 1)

            def forward(self, x, mask):
                scores = self.score(x).squeeze(-1).masked_fill(~mask, float("-inf"))
                weights = torch.softmax(scores, dim=-1)
                return (weights.unsqueeze(-1) * x).sum(1)

        torch.manual_seed(0)
        pool = Pool()
        optimizer = torch.optim.SGD(pool.parameters(), lr=0.1)
        mask = torch.ones(4, 6, dtype=torch.bool)
        mask[2] = False
        loss = pool(torch.randn(4, 6, 3), mask).square().mean()
        loss.backward()
        optimizer.step()
    """
    remedy = offered(source, "safe-masked-softmax")["safe-masked-softmax"]
    assert remedy.verified is True


def test_a_branch_not_taken_gets_a_harmless_operand(offered: Offered) -> None:
    forward = "torch.where(x.abs().sum(1) > 0, torch.sqrt(x.abs().sum(1) * h.square().sum(1)), 0.0)"
    remedy = offered(MODEL.format(forward=forward, loss="out.mean()"), "double-where")["double-where"]
    assert remedy.verified is True
    assert "torch.sqrt(torch.where(x.abs().sum(1) > 0, " in changed_lines(remedy)[1]


def test_what_does_not_help_is_not_offered(offered: Offered) -> None:
    """The log is not to blame: an edit of the division that leaves it NaN is tried, and dropped."""
    forward = "h.sum(1) / (x.abs().sum(1) - x.abs().sum(1))"
    assert "max-with-one" in offered(MODEL.format(forward=forward, loss="out.mean()"), "max-with-one")
    source = MODEL.format(
        forward="h.sum(1) / x.abs().sum(1) / x.abs().sum(1)", loss="(out * 1e38).sum() * 1e38"
    )
    assert offered(source, "clamp-divisor") == {}


def test_nothing_is_left_behind(offered: Offered, tmp_path: Path) -> None:
    offered(MODEL.format(forward="h.sum(1) / x.abs().sum(1)", loss="out.mean()"), "clamp-divisor")
    assert "clamp_min" not in (tmp_path / "program.py").read_text()


def test_every_remedy_has_its_words() -> None:
    assert set(EDITS) == set(REPAIRS)
    assert not set(REPAIRS) & set(SETTINGS)


def test_the_diff_can_be_applied(workshop: Workshop) -> None:
    """`patch` takes it, and the patched program runs through."""
    import json
    import shutil
    import subprocess

    if shutil.which("patch") is None:
        pytest.skip("needs patch")
    source = MODEL.format(forward="h.sum(1) / x.abs().sum(1)", loss="out.square().mean()")
    workshop.write("program.py", source)
    first = workshop.nanwatch("run", "--dir", "run", "program.py")
    assert first.returncode == 3
    incident = json.loads((workshop.folder / "run/incidents/0001/incident.json").read_text())
    edits = [r["edit"] for r in incident["remedies"] if r["edit"] and r["verified"]]
    assert edits, incident["remedies"]
    subprocess.run(["patch", "-p0"], input=edits[0], text=True, cwd=workshop.folder, check=True)
    assert workshop.nanwatch("run", "--dir", "again", "program.py").returncode == 0


def test_without_time_nothing_is_tried_and_nothing_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget is spent from the start: the cause is still named, its remedies are shown as untried."""
    monkeypatch.setattr("nanwatch.explain.case.Budget.spent", True)
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(MODEL.format(forward="h.sum(1) / x.abs().sum(1)", loss="out.mean()")))
    code = compile(path.read_text(), str(path), "exec")
    with pytest.raises(nanwatch.NonFiniteError) as stopped, nanwatch.watch(dir=tmp_path / "run"):
        exec(code, {"__name__": "__main__"})
    incident = stopped.value.incident
    assert incident is not None and incident.cause.id == "divide-by-zero"
    assert incident.remedies and all(remedy.verified is None for remedy in incident.remedies)
    assert incident.remedies[0].edit is not None
