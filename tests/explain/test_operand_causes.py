"""Causes that are decided by the operands of the birth op and by where they came from, on small programs:
each with its look-alike."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import nanwatch
from nanwatch.adapters.plain import Session

PROGRAM = """
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.distributions import Categorical, Gamma, LogNormal, Uniform

    torch.manual_seed(0)
    model = nn.Linear(4, 3, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(3):
        last = step == 2
        x = torch.randn(6, 4)
        zero = torch.ones(6, 1)
        if last:
            zero[2] = 0.0
        h = model(x)
        {body}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
SILENT = "h = model(x * zero); "
MASKED = (
    "legal = torch.ones(6, 3, dtype=torch.bool); legal[2, 0] = not last; "
    "s = h.masked_fill(~legal, -torch.inf); "
)
ROWS = [
    ("empty-selection", "loss = h[torch.rand(6) < (2.0 if not last else -1.0)].mean()"),
    ("empty-selection", "m = torch.rand(6, 3) > (0.1 if not last else 2); loss = (h * m).sum() / m.sum()"),
    ("empty-selection", "loss = (h * zero).sum(1).div(zero.sum(1)).mean()"),
    ("empty-selection", "loss = F.cross_entropy(h, torch.full((6,), -100 if last else 1))"),
    (
        "empty-selection",
        "g = torch.tensor([0, 1, 2, 0, 1, 2]) * (0 if last else 1); n = torch.bincount(g, minlength=3); "
        "loss = (torch.zeros(3, 3).index_add(0, g, h) / n[:, None]).mean()",
    ),
    ("empty-selection", "loss = h[: 1 if last else 3].std(dim=0).mean()"),
    ("divide-by-zero", SILENT + "loss = (h / h.norm(dim=1, keepdim=True)).mean()"),
    ("divide-by-zero", "y = torch.randint(1, 9, (6, 3)) * zero; loss = ((h - y) / y).abs().mean()"),
    (
        "divide-by-zero",
        "w = torch.ones(6, 1); w[:3] = -1.0 if last else 1.0; loss = (h * w).sum() / w.sum()",
    ),
    ("divide-by-zero", "a = torch.ones(6, 6) * zero; loss = ((a / a.sum(1, keepdim=True)) @ h).mean()"),
    ("log-of-zero", "loss = -(h * (1e4 if last else 1)).softmax(-1).log().mean()"),
    ("log-of-zero", "p = torch.sigmoid(h * (1e6 if last else 1)); loss = -((p > 0.5) * p.log()).mean()"),
    ("invalid-domain", "loss = (h if last else h.abs()).sqrt().mean()"),
    ("invalid-domain", "loss = torch.acos(torch.tanh(h) * (3.0 if last else 0.5)).mean()"),
    ("infeasible-target", MASKED + "loss = F.cross_entropy(s, torch.zeros(6, dtype=torch.long))"),
    (
        "infeasible-target",
        MASKED + "loss = -Categorical(logits=s, validate_args=False).log_prob(x.argmin(1) * 0).mean()",
    ),
    ("infeasible-target", MASKED + "loss = F.cross_entropy(s, torch.full((6, 3), 1 / 3))"),
    (
        "infeasible-target",
        "loss = -LogNormal(h[:, 0], 1.0, validate_args=False).log_prob(x[:, 0].abs() * zero[:, 0]).mean()",
    ),
    (
        "infeasible-target",
        "low, y = h[:, 0] - 9, 50 * (1 - zero[:, 0]); "
        "loss = -Uniform(low, low + 18, validate_args=False).log_prob(y).mean()",
    ),
    ("singular-gradient", SILENT + "loss = h.square().sum(1).sqrt().mean()"),
    ("singular-gradient", SILENT + "loss = (h / (h.square().sum(1, keepdim=True).sqrt() + 1e-6)).sum()"),
    ("singular-gradient", SILENT + "loss = h.square().sum(1).sqrt().square().mean()"),
    ("where-gradient", SILENT + "s = h.square().sum(1); loss = torch.where(s > 0, s.sqrt(), 0.0).mean()"),
    ("where-gradient", SILENT + "loss = (h.square().sum(1).sqrt() * zero[:, 0]).mean()"),
    ("where-gradient", SILENT + "loss = h.square().sum(1).sqrt().clamp(min=1e-3).mean()"),
    ("where-gradient", "loss = (h / zero)[zero[:, 0] > 0].mean()"),
]


@pytest.mark.parametrize("live", [True, False], ids=["live trace", "replay"])
@pytest.mark.parametrize(("cause", "body"), ROWS, ids=[f"{c}-{i}" for i, (c, _) in enumerate(ROWS)])
def test_the_cause_is_proved(cause: str, body: str, live: bool, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM).format(body=body))
    code = compile(path.read_text(), str(path), "exec")
    audit = {} if live else {"audit_seconds": 0.0, "audit_share": 0.0}
    with pytest.raises(nanwatch.NonFiniteError) as raised, Session(folder=tmp_path / "run", **audit):
        exec(code, {"__name__": "__main__"})
    found = raised.value.incident.cause
    assert (found.id, found.certainty) == (cause, "proved"), found
