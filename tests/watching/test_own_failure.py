"""nanwatch's own failure: the training ends as without it, with one line that says so."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_training import BAD_STEP, assert_same, bad_loss, batch, good_loss, network, state_of
from test_leaves_nothing import nothing_left, taps
from torch import nn
from workshop import Workshop

import nanwatch

__all__ = ["nothing_left"]
Watch = Callable[..., nanwatch.Session]
STEPPED_ASIDE = (
    "It steps aside: your training goes on, unwatched from here. "
    "Please report this line to the issue tracker of nanwatch."
)
WHILE_ALL_IS_WELL = """
    watching.recorder:Recorder.module_begins
    watching.recorder:Recorder.module_returned
    watching.recorder:Recorder.called
    watching.recorder:Recorder.returned
    watching.recorder:Recorder.backward_begins
    watching.recorder:Recorder.next_step
    watching.tape:Tape.add
    watching.tape:Rng.now
    watching.sentinel:HostSentinel.judge
    watching.backwards:Backwards.begins
    watching.backwards:Backwards.done
    watching.updates:Updates.begins
    watching.updates:Updates.done
    watching.clips:Clips.clipped
    watching.watcher:Watcher.quiet_begins
    watching.watcher:Watcher.quiet_done
    watching.arrivals:Arrivals.came
    watching.watcher:Watcher._root_returned
    watching.step:Step.facts
    replay.tracer:OpTracer._after
    replay.tracer:OpTracer._before
    replay.tracer:OpTracer.new_step
    replay.tracer:OpTracer._note_origin
    replay.tracer:measurable
    replay.live:LiveTracer.begin_step
    replay.live:LiveTracer.end_step
    replay.live:LiveTracer.resume
    replay.live:LiveTracer.pause
    replay.live:LiveTracer.silent_damage
    replay.live:LiveTracer.bad_update
    show.folder:RunFolder.append_step
""".split()
ON_A_BAD_STEP = """
    adapters.plain:locate
    replay.locate:run_again
    adapters.plain:terminal.render
    adapters.plain:terminal.write
    watching.updates:Updates._act_on
    watching.updates:Updates._hold_back
    watching.updates:put_state_back
""".split()


def make_it_fail(monkeypatch: pytest.MonkeyPatch, target: str, after: int) -> list[int]:
    """From its `after`-th call on, `target` raises. Returns the count of its calls."""
    module, _, path = target.partition(":")
    owner: Any = importlib.import_module(f"nanwatch.{module}")
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    calls = [0]

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] >= after:
            raise ZeroDivisionError("a bug of its own")
        return original(*args, **kwargs)

    static = isinstance(owner, type) and isinstance(owner.__dict__[name], staticmethod)
    monkeypatch.setattr(owner, name, staticmethod(failing) if static else failing)
    return calls


def train(bad: int | None = None) -> list[Any]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    loader = torch.utils.data.DataLoader([batch(step)[0] for step in range(12)], batch_size=2)
    for step, x in enumerate(loader):
        optimizer.zero_grad()
        out = model(x + torch.randn_like(x) / 100)
        loss = bad_loss(out) if step == bad else good_loss(out)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return [losses, *state_of(model, optimizer), torch.get_rng_state()]


def lines_of(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return capfd.readouterr().err.splitlines()


@pytest.mark.parametrize("target", WHILE_ALL_IS_WELL)
def test_while_all_is_well(
    target: str, watch: Watch, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = train()
    before = taps()
    session = watch()
    calls = make_it_fail(monkeypatch, target, 3)
    found = train()
    session.close()
    assert calls[0] >= 3, "never called: the test tests nothing"
    assert taps() == before
    assert_same(found, expected)
    lines = lines_of(capfd)
    assert len(lines) == 1, lines
    assert lines[0].startswith("nanwatch: an error of its own (ZeroDivisionError: a bug of its own (")
    assert lines[0].endswith(STEPPED_ASIDE)


@pytest.mark.parametrize(
    "target", ["watching.sentinel:DeviceSentinel.guard", "watching.sentinel:DeviceSentinel.past"]
)
def test_in_device_mode(
    target: str, watch: Watch, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def run() -> list[Any]:
        torch.manual_seed(0)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        for step in range(5):
            optimizer.zero_grad()
            good_loss(model(batch(step))).backward()
            optimizer.step()
        return state_of(model, optimizer)

    expected = run()
    session = watch(mode="device")
    make_it_fail(monkeypatch, target, 3)
    found = run()
    session.close()
    assert_same(found, expected)
    lines = lines_of(capfd)
    assert len(lines) == 1 and lines[0].endswith(STEPPED_ASIDE), lines


@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("target", ON_A_BAD_STEP)
def test_on_a_bad_step(
    target: str, policy: str, watch: Watch, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The training goes on, as it would have without nanwatch: with its NaN."""
    only_skip = target.endswith(("_hold_back", "put_state_back"))
    if only_skip and policy != "skip":
        pytest.skip("used by the policy skip only")
    expected = train(BAD_STEP)
    options = {"audit_seconds": 0, "audit_share": 0} if "run_again" in target else {}
    session = watch(policy=policy, **options)
    calls = make_it_fail(monkeypatch, target, 1)
    found = train(BAD_STEP)
    session.close()
    assert calls[0] >= 1, "never called: the test tests nothing"
    lines = [line for line in lines_of(capfd) if line.startswith("nanwatch:")]
    assert len(lines) == 1 and lines[0].endswith(STEPPED_ASIDE), lines
    if not target.endswith("put_state_back"):  # the step was held back by then
        assert_same(found, expected)


def test_an_incident_that_cannot_be_written_still_stops_the_training(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    session = watch()
    make_it_fail(monkeypatch, "show.folder:RunFolder.write_incident", 1)
    with pytest.raises(nanwatch.NonFiniteError):
        train(BAD_STEP)
    session.close()
    lines = [line for line in lines_of(capfd) if line.startswith("nanwatch:")]
    assert len(lines) == 1
    assert lines[0].startswith(
        f"nanwatch: the incident could not be written to {tmp_path}/run (ZeroDivisionError"
    )


SCRIPT = """
    import sys, torch
    if "nanwatch" in sys.modules:
        from nanwatch.watching.recorder import Recorder
        from nanwatch.replay.tracer import OpTracer
        def broken(*args):
            raise ZeroDivisionError("a bug of its own")
        {patch} = broken
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(4):
        optimizer.zero_grad()
        loss = model(torch.randn(3, 4)).square().mean()
        loss.backward()
        optimizer.step()
        print(loss.item())
    print(torch.rand(1).item())
"""


@pytest.mark.parametrize(
    "patch",
    [
        "Recorder.module_begins",
        "OpTracer._after",
    ],
)
def test_in_a_real_run(workshop: Workshop, patch: str) -> None:
    workshop.write("script.py", SCRIPT.format(patch=patch))
    _, watched = workshop.same("script.py")
    assert watched.stderr.count("\n") == 1
    assert watched.stderr.endswith(STEPPED_ASIDE + "\n")
