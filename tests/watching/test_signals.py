"""What a signal handler of the program raises reaches the program, whatever code it comes upon."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from small_training import bad_loss, batch, good_loss, network
from torch import nn

import nanwatch
from nanwatch.signals import from_a_handler
from nanwatch.tensors import is_finite
from nanwatch.watching import recorder, updates, watcher

Watch = Callable[..., nanwatch.Session]


class Late(Exception):
    pass


def too_late(number: int, frame: Any) -> None:
    raise Late


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """Sends the signal now."""
    was = signal.signal(signal.SIGUSR1, too_late)
    yield lambda: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, was)


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer, bad: bool = False) -> None:
    optimizer.zero_grad()
    (bad_loss if bad else good_loss)(model(batch(0))).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


COMES_UPON = {
    "a call": (recorder.Recorder, "called"),
    "what it returned": (recorder.Recorder, "returned"),
    "a model": (recorder.Recorder, "module_begins"),
    "what that returned": (recorder.Recorder, "module_returned"),
    "a backward": (recorder.Recorder, "backward_begins"),
    "its end": (recorder.Recorder, "backward_done"),
    "what is let go of": (recorder, "let_go"),
    "an update": (updates.Updates, "begins"),
    "its end, too": (updates.Updates, "done"),
    "a quiet call": (watcher.Watcher, "quiet_begins"),
}


@pytest.mark.parametrize("name", COMES_UPON)
def test_it_is_raised_and_the_watch_goes_on(
    watch: Watch, alarm: Callable[[], None], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    owner, method = COMES_UPON[name]
    work = getattr(owner, method)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        made = work(*args, **kwargs)
        alarm()
        return made

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = watch()
    one_step(model, optimizer)
    with monkeypatch.context() as patched:
        patched.setattr(owner, method, interrupted)
        with pytest.raises(Late):
            one_step(model, optimizer)
    assert not session.watcher.shield.broken and not session.watcher.shield.busy
    one_step(model, optimizer)
    assert torch._C._len_torch_function_stack() == 1
    with pytest.raises(nanwatch.NonFiniteError):
        one_step(model, optimizer, bad=True)
    session.close()
    assert torch._C._len_torch_function_stack() == torch._C._len_torch_dispatch_stack() == 0


def test_a_measurement_does_not_swallow_it(alarm: Callable[[], None]) -> None:
    class Hollow(torch.Tensor):
        @property
        def fake_device(self) -> None:
            alarm()

    with pytest.raises(Late):
        is_finite(torch.ones(2).as_subclass(Hollow))


@pytest.mark.parametrize("handler", [too_late, lambda *args: too_late(*args)], ids=["plain", "packed"])
def test_a_handler_is_known_by_the_frame_it_is_given(handler: Callable[..., None]) -> None:
    was = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Late) as caught:
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, was)
    assert from_a_handler(caught.value)


def test_an_error_of_a_function_that_was_called_is_no_signal() -> None:
    with pytest.raises(Late) as caught:
        too_late(3, sys._getframe(1))
    assert not from_a_handler(caught.value)
