"""The same watching on a GPU: device mode, late verdicts, replay, mixed precision, compiled models."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import nanwatch

pytestmark = pytest.mark.gpu


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Linear(16, 32)
        self.norm = nn.BatchNorm1d(32)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.drop(torch.relu(self.norm(self.inp(x))))
        h = torch.sqrt(1 + h + x.mean(1, keepdim=True).clamp(max=0) * (x.abs().amax() > 1e5))
        return self.out(h)


def batches(count: int, bad: int | None) -> list[tuple[torch.Tensor, torch.Tensor]]:
    g = torch.Generator().manual_seed(1)
    made = []
    for i in range(count):
        x = torch.randn(8, 16, generator=g)
        if i == bad:
            x[3] = -1e6
        made.append((x.cuda(), torch.randint(0, 4, (8,), generator=g).cuda()))
    return made


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: list, autocast: bool = False
) -> list[float]:
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [float(v) for v in losses]


@pytest.mark.parametrize("audit", [0.0, 5.0])
@pytest.mark.parametrize("mode", ["host", "device"])
def test_the_birth_is_named_on_cuda(mode: str, audit: float, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Net().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    before: dict[str, torch.Tensor] = {}
    data = batches(10, bad=6)
    watch = nanwatch.watch(model, optimizer, mode=mode, dir=tmp_path, audit_seconds=audit, audit_share=0.0)
    with pytest.raises(nanwatch.NonFiniteError) as caught, watch:
        train(model, optimizer, data[:6])
        before = copy.deepcopy(model.state_dict())
        train(model, optimizer, data[6:])
    incident = caught.value.incident
    assert (incident.step, incident.phase, incident.birth.op) == (6, "forward", "aten.sqrt.default")
    assert incident.birth.module == ""
    assert incident.birth.samples == (3,)
    assert all(
        torch.equal(before[k], v) for k, v in model.state_dict().items() if k.startswith(("inp", "out"))
    )


@pytest.mark.parametrize("loop", ["clipped", "two parts", "half"])
def test_a_late_verdict_in_other_loops(loop: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    dtype = torch.bfloat16 if loop == "half" else torch.float32
    model = Net().cuda().to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    options = {"mode": "device", "dir": tmp_path, "audit_seconds": 0.0, "audit_share": 0.0}
    before: list[torch.Tensor] = []
    with pytest.raises(nanwatch.NonFiniteError) as caught, nanwatch.watch(model, optimizer, **options):
        for step, (x, y) in enumerate(batches(12, bad=6)):
            if step == 6:
                before = [p.detach().clone() for p in model.parameters()]
            optimizer.zero_grad()
            for part in range(2 if loop == "two parts" else 1):
                F.cross_entropy(model(x.to(dtype).roll(part, 0)), y.roll(part, 0)).backward()
            if loop == "clipped":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    incident = caught.value.incident
    assert (incident.step, incident.phase, incident.birth.op) == (6, "forward", "aten.sqrt.default")
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize("mode", ["host", "device"])
@pytest.mark.parametrize("autocast", [False, True])
def test_bit_identical_on_cuda(mode: str, autocast: bool, tmp_path: Path) -> None:
    data = batches(20, bad=None)

    def once(watched: bool) -> tuple[list[float], dict[str, torch.Tensor], torch.Tensor]:
        torch.manual_seed(0)
        model = Net().cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        if watched:
            with nanwatch.watch(model, optimizer, mode=mode, dir=tmp_path):
                losses = train(model, optimizer, data, autocast)
        else:
            losses = train(model, optimizer, data, autocast)
        return losses, model.state_dict(), torch.cuda.get_rng_state()

    plain, watched = once(False), once(True)
    assert plain[0] == watched[0]
    assert all(torch.equal(a, b) for a, b in zip(plain[1].values(), watched[1].values(), strict=True))
    assert torch.equal(plain[2], watched[2])


def test_device_mode_never_waits_for_the_device(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Net().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data = batches(2, bad=None)
    with nanwatch.watch(model, optimizer, mode="device", dir=tmp_path, audit_seconds=0.0, audit_share=0.0):
        train(model, optimizer, data)
        x, y = data[0]
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(2):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_a_scaler_searching_its_scale_is_no_incident_and_a_real_nan_is(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**24)
    x, y = batches(1, None)[0]
    with nanwatch.watch(model, optimizer, dir=tmp_path) as session:
        for _ in range(8):
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss = F.cross_entropy(model(x * 100), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        assert not session.incidents
        with pytest.raises(nanwatch.NonFiniteError) as caught:
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                out = model(x)
                loss = (out.float() ** 2).sum() + (out * 0).float().sum().sqrt()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
    assert caught.value.incident.phase == "backward"
    assert caught.value.incident.birth.op == "aten.div.Tensor"


def test_half_overflow_under_autocast_is_named(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    x, y = batches(1, None)[0]
    with pytest.raises(nanwatch.NonFiniteError) as caught, nanwatch.watch(model, optimizer, dir=tmp_path):
        for scale in (1.0, 1.0, 1e7):
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss = F.cross_entropy(model(x * scale), y)
            loss.backward()
            optimizer.step()
    incident = caught.value.incident
    assert incident.step == 2
    assert incident.birth.op == "aten._to_copy.default"
    assert incident.kind == "inf"


def test_a_compiled_model_is_replayed_in_eager_code(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Net().cuda()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    with pytest.raises(nanwatch.NonFiniteError) as caught, nanwatch.watch(model, optimizer, dir=tmp_path):
        train(compiled, optimizer, batches(6, bad=3))
    incident = caught.value.incident
    assert (incident.step, incident.birth.op) == (3, "aten.sqrt.default")
    assert incident.birth.line is not None and "sqrt" in incident.birth.code


def test_inference_on_cuda(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Net().cuda().eval()
    with (
        pytest.raises(nanwatch.NonFiniteError) as caught,
        nanwatch.watch(model, dir=tmp_path),
        torch.no_grad(),
    ):
        for x, _ in batches(5, bad=2):
            model(x)
    assert (caught.value.incident.step, caught.value.incident.birth.op) == (2, "aten.sqrt.default")


ON_THE_CPU = """
import json, os, sys, torch, nanwatch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
with nanwatch.watch(dir=sys.argv[1], policy="skip"):
    child = os.fork()
    if not child:
        os._exit(0 if float(torch.ones(3, device="cuda").sum()) == 3 else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0, "a forked process could not use the GPU"
    for step in range(4):
        x = torch.randn(8, 4)
        loss = (torch.log(x.abs() * (step != 2)) * model(x)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
assert not torch.cuda.is_initialized()
"""


def test_a_program_on_the_cpu_is_not_made_to_use_the_gpu(tmp_path: Path) -> None:
    """Else processes that it forks could not use it any more. An incident does not begin to, either."""
    (tmp_path / "program.py").write_text(ON_THE_CPU)
    run = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "run")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["devices"] == ["cpu"]
    assert list((tmp_path / "run" / "incidents").iterdir())


def test_the_gpus_in_use_are_written_down(tmp_path: Path) -> None:
    model = Net().cuda()
    with nanwatch.watch(dir=tmp_path / "run"):
        train(model, torch.optim.SGD(model.parameters(), 0.1), batches(2, None))
    written = json.loads((tmp_path / "run" / "run.json").read_text())["devices"]
    assert written == ["cpu", *(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))]
