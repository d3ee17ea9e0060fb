"""`nanwatch.watch(...)` from code, and that closing it leaves torch and the program as they were."""

from __future__ import annotations

import gc
import math
import os
import random
import re
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from small_training import BAD_STEP, assert_same, bad_loss, batch, good_loss, network, state_of, train
from torch import nn
from torch.optim import optimizer as optim_module
from torch.utils.data import dataloader

import nanwatch
from nanwatch.watching import op_tap

Watch = Callable[..., nanwatch.Session]


def taps() -> dict[str, Any]:
    """Everything of torch that nanwatch may touch, as it is now."""
    scaler = torch.amp.GradScaler
    return {
        "call": nn.Module.__dict__["__call__"],
        "call_impl": nn.Module.__dict__["_call_impl"],
        "backward": torch.autograd.backward,
        "tensor_backward": torch.Tensor.__dict__["backward"],
        "apply": torch.autograd.Function.__dict__["apply"],
        "compile": torch.compile,
        "load": torch.load,
        "from_numpy": torch.from_numpy,
        "frombuffer": torch.frombuffer,
        "from_dlpack": torch.from_dlpack,
        "submit": ThreadPoolExecutor.submit,
        "clip": torch.nn.utils.clip_grad_norm_,
        "clip_grad": sys.modules["torch.nn.utils.clip_grad"].clip_grad_norm_,
        "scaler": {name: scaler.__dict__[name] for name in ("scale", "unscale_", "step", "update")},
        "optimizer": {name: optim_module.Optimizer.__dict__[name] for name in ("__init__", "zero_grad")},
        "loader": dataloader._BaseDataLoaderIter.__dict__["__next__"],
        "step_hooks": dict(optim_module._global_optimizer_pre_hooks),
        "post_hooks": dict(optim_module._global_optimizer_post_hooks),
        "module_hooks": [
            dict(hooks)
            for name, hooks in sorted(vars(sys.modules["torch.nn.modules.module"]).items())
            if name.startswith("_global_") and isinstance(hooks, dict)
        ],
        "functions": torch._C._len_torch_function_stack(),
        "dispatch": torch._C._len_torch_dispatch_stack(),
        "ops": (op_tap.is_on(), op_tap.listener()),
        "excepthook": sys.excepthook,
        "threads": threading.active_count(),
        "anomaly": torch.is_anomaly_enabled(),
        "grad": torch.is_grad_enabled(),
    }


@pytest.fixture(autouse=True)
def nothing_left() -> Any:
    """Mends torch after a test that left something behind, so that no other test fails for it."""
    before = taps()
    yield
    if taps() != before:
        restore(before)


def open_files() -> set[str]:
    return {
        os.readlink(f"/proc/self/fd/{n}")
        for n in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{n}")
    }


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int = 0, bad: bool = False) -> None:
    optimizer.zero_grad()
    out = model(batch(step))
    (bad_loss if bad else good_loss)(out).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def test_the_check_can_fail(tmp_path: Path) -> None:
    before = taps()
    session = nanwatch.watch(dir=tmp_path / "run")
    during = taps()
    changed = {name for name in before if before[name] != during[name]}
    session.close()
    expected = "call backward apply compile load from_numpy clip clip_grad scaler optimizer loader step_hooks"
    assert changed >= {*expected.split(), "post_hooks", "functions", "ops"}


def test_a_session_is_closed_by_close_and_by_with(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = taps()
    session = nanwatch.watch(model, optimizer, dir=tmp_path / "a")
    one_step(model, optimizer)
    session.close()
    assert taps() == before
    session.close()  # twice does no harm
    with nanwatch.watch(model, optimizer, dir=tmp_path / "b") as inside:
        one_step(model, optimizer)
    assert taps() == before
    assert inside.incidents == []
    assert not any(str(tmp_path) in name for name in open_files())
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in model.modules())


def test_an_incident_inside_with(tmp_path: Path) -> None:
    before = taps()
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    groups = optimizer.param_groups
    with pytest.raises(nanwatch.NonFiniteError), nanwatch.watch(dir=tmp_path / "run"):
        train(model, optimizer, bad=[BAD_STEP])
    assert taps() == before
    assert optimizer.param_groups is groups


def test_another_error_inside_with(tmp_path: Path) -> None:
    before = taps()
    model = network()
    with pytest.raises(RuntimeError, match="shapes"), nanwatch.watch(dir=tmp_path / "run") as session:
        model(torch.ones(2, 3))
    assert taps() == before
    assert session.incidents == []


def test_a_verdict_that_comes_with_the_end_still_takes_every_tap_off(tmp_path: Path) -> None:
    """Inference with gradients on is judged at the next call, or here, when the session is closed."""
    before = taps()
    with pytest.raises(nanwatch.NonFiniteError), nanwatch.watch(dir=tmp_path / "run"):
        nn.Linear(2, 2)(torch.full((1, 2), float("inf")))
    assert taps() == before


def test_closed_in_the_middle_of_a_step(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = taps()
    session = nanwatch.watch(dir=tmp_path / "run")
    loss = good_loss(model(batch(0)))
    session.close()
    assert taps() == before
    loss.backward()
    optimizer.step()


def test_opened_and_closed_under_a_mode_of_the_program(tmp_path: Path) -> None:
    """Modes that the program itself has on the stack stay there, in their order."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counts(TorchFunctionMode):
        seen = 0

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen += 1
            return function(*args, **(kwargs or {}))

    class Passes(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen += 1
            return function(*args, **(kwargs or {}))

    before = taps()
    session = nanwatch.watch(dir=tmp_path / "run")
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Counts() as counts, Passes() as passes:
        one_step(model, optimizer)
        assert counts.seen and passes.seen
        session.close()
        seen = counts.seen, passes.seen
        one_step(model, optimizer)
        assert counts.seen > seen[0] and passes.seen > seen[1]
    assert taps() == before


def test_sessions_one_after_the_other_and_one_inside_the_other(tmp_path: Path) -> None:
    before = taps()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for turn in range(3):
        with nanwatch.watch(dir=tmp_path / f"turn{turn}") as session:
            one_step(model, optimizer, turn)
        assert taps() == before
        assert session.watcher.step == 1
    with nanwatch.watch(dir=tmp_path / "outer") as outer:
        one_step(model, optimizer)
        with nanwatch.watch(dir=tmp_path / "inner") as inner:
            one_step(model, optimizer)
        one_step(model, optimizer)
    assert taps() == before
    assert (outer.watcher.step, inner.watcher.step) == (3, 1)


def test_sessions_closed_in_the_order_they_were_opened(tmp_path: Path) -> None:
    before = taps()
    first = nanwatch.watch(dir=tmp_path / "first")
    second = nanwatch.watch(dir=tmp_path / "second")
    first.close()
    second.close()
    assert taps() == before


def restore(before: dict[str, Any]) -> None:
    """Mend torch by hand, so that a session that left something behind fails its own test only."""
    nn.Module.__call__ = before["call"]  # type: ignore[method-assign]
    torch.autograd.backward = before["backward"]
    torch.autograd.Function.apply = before["apply"]  # type: ignore[method-assign]
    for name in ("compile", "load", "from_numpy", "frombuffer", "from_dlpack"):
        setattr(torch, name, before[name])
    ThreadPoolExecutor.submit = before["submit"]  # type: ignore[method-assign]
    torch.nn.utils.clip_grad_norm_ = before["clip"]
    sys.modules["torch.nn.utils.clip_grad"].clip_grad_norm_ = before["clip_grad"]  # type: ignore[attr-defined]
    for owner, key in ((torch.amp.GradScaler, "scaler"), (optim_module.Optimizer, "optimizer")):
        for name, value in before[key].items():
            setattr(owner, name, value)
    dataloader._BaseDataLoaderIter.__next__ = before["loader"]  # type: ignore[method-assign]
    for hooks, key in (
        (optim_module._global_optimizer_pre_hooks, "step_hooks"),
        (optim_module._global_optimizer_post_hooks, "post_hooks"),
    ):
        hooks.clear()
        hooks.update(before[key])
    while torch._C._len_torch_function_stack() > before["functions"]:
        torch._C._pop_torch_function_stack()
    while torch._C._len_torch_dispatch_stack() > before["dispatch"]:
        torch._C._pop_torch_dispatch_stack(None)


def test_functions_taken_before_and_during_work_after(tmp_path: Path) -> None:
    """A script may keep `clip_grad_norm_` or a compiled function from the time it was watched."""
    session = nanwatch.watch(dir=tmp_path / "run")
    clip, load = torch.nn.utils.clip_grad_norm_, torch.from_numpy
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    session.close()
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = torch.full((2,), 3.0)
    assert clip((p for p in [parameter]), 1.0).item() == pytest.approx(18**0.5)
    assert load(numpy.ones(2)).tolist() == [1.0, 1.0]
    assert compiled(torch.ones(1)).item() == 2.0


def test_a_closed_session_holds_nothing_of_the_program(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = nanwatch.watch(model, optimizer, dir=tmp_path / "run")
    one_step(model, optimizer)
    session.close()
    gone = weakref.ref(model), weakref.ref(optimizer)
    del model, optimizer, session
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_random_numbers_are_the_programs_own(tmp_path: Path) -> None:
    """Opening, watching a bad step (with its replay) and closing draw nothing."""

    def states() -> list[Any]:
        return [torch.get_rng_state(), random.getstate(), repr(numpy.random.get_state())]

    torch.manual_seed(1)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = states()
    with nanwatch.watch(dir=tmp_path / "run", policy="skip", audit_seconds=0, audit_share=0) as session:
        train(model, optimizer, bad=[1], steps=2)
    assert len(session.incidents) == 1
    assert_same(states(), before)


def test_what_may_be_watched() -> None:
    with pytest.raises(nanwatch.NanwatchError) as error:
        nanwatch.watch("model")
    assert str(error.value) == (
        "nanwatch.watch was given a str; a torch.nn.Module, a torch.optim.Optimizer or another object with a "
        "state_dict was expected, for example: nanwatch.watch(model, optimizer)"
    )
    with pytest.raises(nanwatch.NanwatchError, match="unknown policy retry"):
        nanwatch.watch(policy="retry")
    with pytest.raises(nanwatch.NanwatchError, match="unknown mode gpu"):
        nanwatch.watch(mode="gpu")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"wat": 1}, "nanwatch.watch has no argument wat. It has: audit_seconds, audit_share"),
        ({"audit_share": "x"}, "audit_share is 'x'; a number from 0 to 1 was expected"),
        ({"audit_seconds": -1}, "audit_seconds is -1; "),
        ({"audit_seconds": math.nan}, "audit_seconds is nan; "),
        ({"snapshot_every": 0}, "snapshot_every is 0; a whole number of at least 1 was expected"),
        ({"explain": "no"}, "explain is 'no'; True or False was expected"),
        ({"dir": 3}, "dir is 3; the path of a folder, or None was expected"),
        ({"dir": ""}, "dir is ''; the path"),
        ({"policy": ["skip"]}, "unknown policy"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_begins(wrong: dict[str, Any], said: str) -> None:
    before = nn.Module.__call__
    with pytest.raises(nanwatch.NanwatchError, match=re.escape(said)):
        nanwatch.watch(**wrong)
    assert nn.Module.__call__ is before


def test_an_optimizer_made_before_watching_is_known(watch: Watch) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = state_of(model)
    session = watch(model, optimizer, policy="skip")
    one_step(model, optimizer, bad=True)
    session.close()
    assert [(i.step, i.action) for i in session.incidents] == [(0, "skipped")]
    assert_same(state_of(model), before)
