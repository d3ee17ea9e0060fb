"""An index outside its table ends a program on a GPU late and without its place: the report has both."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

PROGRAM = """
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 5)

    def forward(self, ids):
        return self.head(self.norm(self.words(ids).mean(1)))


torch.manual_seed(0)
model = Tagger().cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=FUSED)
for step in range(8):
    ids, tags = torch.randint(0, 50, (6, 9)), torch.randint(0, 5, (6,))
    if step == 4:
        BREAK
    ids, tags = ids.cuda(), tags.to("cuda", non_blocking=True)
    loss = nn.functional.cross_entropy(model(ids), tags)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
"""


@pytest.mark.parametrize("fused", [False, True], ids=["host", "device"])
@pytest.mark.parametrize(
    "audit", [[], ["--audit-seconds", "0", "--audit-share", "0"]], ids=["live", "replay"]
)
@pytest.mark.parametrize(
    ("broken", "op", "module", "code", "rows"),
    [
        ("ids[2, 3] = 50", "aten.embedding.default", "words", "return self.head(", [2]),
        ("tags[1] = 7", "aten.nll_loss_forward.default", None, "loss = nn.functional.cross_entropy(", [1]),
    ],
    ids=["word", "tag"],
)
def test_the_op_behind_a_device_assert(
    tmp_path: Path,
    fused: bool,
    audit: list[str],
    broken: str,
    op: str,
    module: str | None,
    code: str,
    rows: list[int],
) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.replace("FUSED", str(fused)).replace("BREAK", broken))
    command = [sys.executable, "-m", "nanwatch", "run", "--dir", str(tmp_path / "run"), *audit, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found = sorted((tmp_path / "run").glob("incidents/*/incident.json"))
    assert len(found) == 1, done.stderr[-3000:]
    incident = json.loads(found[0].read_text())
    birth = incident["birth"]
    assert (incident["kind"], incident["step"], birth["op"], birth["module"]) == ("index", 4, op, module)
    assert birth["code"].startswith(code)
    assert birth["samples"] == rows
    assert (incident["cause"]["id"], incident["cause"]["certainty"]) == ("index-out-of-range", "proved")
    assert done.returncode == 3
