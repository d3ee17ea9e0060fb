"""Going back restores every bit, whatever happened since; training on from there is training undisturbed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from snapshot_trainings import TRAININGS, Training, adam, assert_same, batchnorm_onecycle, net, seed
from torch import nn

import nanwatch
from nanwatch import LastGood, NanwatchError

Make = Callable[[], Training]
every_training = pytest.mark.parametrize("make", TRAININGS, ids=lambda make: make.__name__)


@pytest.fixture(params=["memory", "disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "last-good" if request.param == "disk" else None


@every_training
def test_every_bit_comes_back(make: Make, place: Path | None, capfd: pytest.CaptureFixture[str]) -> None:
    seed()
    training = make()
    with LastGood(*training.objects, every=4, dir=place) as last_good:
        for step in range(10):
            training.step()
            last_good.step(step)
            if step == 8:
                good = training.bits()
        training.spoil()
        for _ in range(2):  # a snapshot can be gone back to again and again
            assert last_good.rollback() == 8
            assert_same(good, training.bits())
            assert all(p.grad is None for p in training.optimizer.param_groups[0]["params"])
            training.step()
    assert capfd.readouterr().err == ""


@every_training
def test_a_run_that_went_astray_ends_like_one_that_did_not(make: Make, place: Path | None) -> None:
    seed()
    straight = make()
    for _ in range(14):
        straight.step()
    expected = straight.bits()

    seed()
    training = make()
    with LastGood(training.objects, every=5, dir=place) as last_good:
        step, astray = 0, False
        while step < 14:
            training.step()
            last_good.step(step)
            if step == 12 and not astray:
                astray = True
                training.spoil()
                step = last_good.rollback()
                assert step == 10
            step += 1
    assert_same(expected, training.bits())


PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch
import snapshot_trainings
from nanwatch import LastGood
out = {}
for make in snapshot_trainings.TRAININGS:
    snapshot_trainings.seed(int(sys.argv[3]))
    training = make()
    with LastGood(*training.objects, every=4, dir=Path(sys.argv[2]) / make.__name__) as last_good:
        if sys.argv[3] == "0":
            for step in range(9):
                training.step()
                last_good.step(step)
        else:
            assert last_good.rollback() == 8
        for _ in range(3):
            training.step()
    out[make.__name__] = training.bits()[:-2]
torch.save(out, Path(sys.argv[2]) / f"bits{sys.argv[3]}")
"""


def test_a_new_process_goes_on_as_the_old_one_did(tmp_path: Path) -> None:
    for number in "01":
        command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(tmp_path), number]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
    first, second = (torch.load(tmp_path / f"bits{n}", weights_only=False) for n in "01")
    assert len(first) == len(TRAININGS)
    assert_same(first, second)


def test_taking_snapshots_changes_nothing(place: Path | None) -> None:
    ends = []
    for watched in (False, True):
        seed()
        training = batchnorm_onecycle()
        last_good = LastGood(*training.objects, every=2, dir=place) if watched else None
        for step in range(8):
            training.step()
            if last_good is not None:
                last_good.step(step)
        ends.append(training.bits())
    assert_same(*ends)


def test_other_batches_may_be_wanted(place: Path | None) -> None:
    seed()
    training = adam()
    with LastGood(*training.objects, every=100, dir=place) as last_good:
        training.step()
        last_good.step(0)
        good = training.bits()
        training.step()
        later = training.bits()
        assert last_good.rollback(random=False) == 0
    assert_same([*good[:2], *later[2:]], training.bits())


def test_when_a_snapshot_is_due(tmp_path: Path) -> None:
    training = adam()
    with LastGood(*training.objects, every=10, dir=tmp_path, keep=9) as last_good:
        for step in range(3, 35):
            last_good.step(step)
        last_good.wait()
        steps = [path.name.split("-")[2] for path in sorted(tmp_path.glob("*-rank0"))]
    assert steps == ["step3", "step10", "step20", "step30"]


def test_only_as_many_as_asked_for_are_kept(tmp_path: Path) -> None:
    training = adam()
    for keep in (1, 2, 3):
        with LastGood(*training.objects, every=1, dir=tmp_path / str(keep), keep=keep) as last_good:
            for step in range(6):
                last_good.step(step)
        assert len(list((tmp_path / str(keep)).glob("*-rank0*"))) == keep


def test_each_one_kept_has_memory_of_its_own(place: Path | None) -> None:
    """The memory of those that go is used again, that of those that stay is not."""
    seed()
    training, bits = adam(), []
    with LastGood(*training.objects, every=1, dir=place, keep=3) as last_good:
        for step in range(9):
            training.step()
            last_good.step(step)
            bits.append(training.bits())
        for step in (8, 7, 6):
            training.spoil()
            assert last_good.rollback() == step
            assert_same(bits[step], training.bits())
            last_good._shelf.drop(last_good._shelf.ids()[0])
        with pytest.raises(NanwatchError, match="none has been kept yet"):
            last_good.rollback()


SPOILERS: list[tuple[str, Callable[[Training], Any]]] = [
    ("0.Sequential.weights.0.weight", lambda t: t.model[0].weight.data[1, 2].fill_(float("nan"))),
    ("0.Sequential.weights.3.bias", lambda t: t.model[3].bias.data[0].fill_(float("-inf"))),
    ("0.Sequential.buffers.1.running_var", lambda t: t.model[1].running_var[3].fill_(float("inf"))),
    (
        "1.Adam.state.1.exp_avg_sq",
        lambda t: t.optimizer.state[t.model[0].bias]["exp_avg_sq"][2].fill_(float("inf")),
    ),
    ("1.Adam.param_groups.0.lr", lambda t: t.optimizer.param_groups[0].update(lr=float("nan"))),
]


@pytest.mark.parametrize(("name", "spoil"), SPOILERS, ids=[name for name, _ in SPOILERS])
def test_what_is_not_finite_is_no_snapshot(
    name: str, spoil: Any, place: Path | None, capfd: pytest.CaptureFixture[str]
) -> None:
    model = net(nn.BatchNorm1d(8))
    training = Training(model, torch.optim.Adam(model.parameters()))
    with LastGood(*training.objects, every=1, dir=place) as last_good:
        for step in range(2):
            training.step()
            last_good.step(step)
        good = training.bits()
        spoil(training)
        for step in range(2, 5):
            last_good.step(step)
        assert last_good.rollback() == 1
    assert_same(good, training.bits())
    assert capfd.readouterr().err == (
        f"nanwatch: no snapshot at step 2: {name} holds NaN or Inf. The last good snapshots are kept.\n"
    )


def test_a_mask_is_no_reason_but_infinities_among_numbers_are(capfd: pytest.CaptureFixture[str]) -> None:
    module = nn.Module()
    module.register_buffer("mask", torch.full((3, 3), float("-inf")).triu(1))
    module.register_buffer("table", torch.tensor([1.0, 2.0, 3.0]))
    with LastGood(module, every=1) as last_good:
        last_good.step(0)
        assert last_good.rollback() == 0
        module.table[0] = float("-inf")
        last_good.step(1)
        assert last_good.rollback() == 0
        assert module.table[0] == 1.0
    assert "0.Module.buffers.table holds NaN or Inf" in capfd.readouterr().err


def test_a_buffer_that_a_call_sets() -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("center", None)
    with LastGood(module, every=1) as last_good:
        last_good.step(0)
        module.center = torch.ones(2)
        assert last_good.rollback() == 0 and module.center is None
        module.center = torch.ones(2)
        last_good.step(1)
        module.center = None
        assert last_good.rollback() == 1
        assert module.center is not None and module.center.tolist() == [1.0, 1.0]


def test_a_scripted_layer_goes_back_too() -> None:
    module = nn.Sequential(nn.Linear(2, 2), torch.jit.script(nn.BatchNorm1d(2)))
    before = {name: t.clone() for name, t in module.state_dict().items()}
    with LastGood(module, every=1) as last_good:
        last_good.step(0)
        module(torch.randn(4, 2))
        with torch.no_grad():
            module[0].weight.zero_()
        assert last_good.rollback() == 0
    assert all(torch.equal(t, before[name]) for name, t in module.state_dict().items())


def test_nothing_to_go_back_to() -> None:
    training = adam()
    with LastGood(*training.objects) as last_good:
        with pytest.raises(NanwatchError, match="none has been kept yet"):
            last_good.rollback()
        training.spoil()
        last_good.step(0)
        with pytest.raises(NanwatchError, match="none has been kept yet"):
            last_good.rollback()


def test_under_the_watch_too() -> None:
    """nanwatch's own tracer and modes see nothing of it, and it restores what they watch."""
    seed()
    training = adam()
    with nanwatch.watch(policy="observe") as session, LastGood(*training.objects, every=1) as last_good:
        for step in range(3):
            training.step()
            last_good.step(step)
        good = training.bits()
        training.spoil()
        assert last_good.rollback() == 2
        assert_same(good, training.bits())
        training.step()
    assert session.incidents == []


def test_the_page_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "last-good.md").read_text(encoding="utf-8")
    code, printed = (
        page.split("```python\n")[1].split("```")[0],
        page.split("prints\n\n```\n")[1].split("```")[0],
    )
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "last-good.md", "exec"), {})
    assert capsys.readouterr().out == printed
