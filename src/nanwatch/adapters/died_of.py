"""What was behind the exception that ended the program: non-finite values, or an index outside its table."""

from __future__ import annotations

import torch

from nanwatch.messages import say
from nanwatch.replay.locate import locate
from nanwatch.replay.locate_index import locate_assert, locate_index
from nanwatch.replay.located import Located
from nanwatch.replay.out_of_range import may_be_an_index
from nanwatch.watching.asked_about import asked_about
from nanwatch.watching.device_assert import is_device_assert
from nanwatch.watching.first_look import look_at
from nanwatch.watching.post_mortem import bad_tensors_of
from nanwatch.watching.shield import warn
from nanwatch.watching.trouble import Trouble
from nanwatch.watching.watcher import Watcher

OF_NO_VALUE = (
    "modified by an inplace operation",
    "backward through the graph a second time",
    "does not require grad",
    "to have the same dtype",
    "on the same device",
    "out of memory",
    "can't allocate memory",
)
"""What torch says of graphs, types, devices and memory, which are the same whatever the values are. (Not so
shapes: there may be a mask that NaN made.)"""


def behind(error: BaseException, watcher: Watcher) -> tuple[Trouble, Located] | None:
    """None if it was something else."""
    if is_device_assert(error):
        return _assert(watcher)
    if isinstance(error, RuntimeError) and any(words in str(error) for words in OF_NO_VALUE):
        return None
    found = _index(error, watcher) if may_be_an_index(error) else None
    return found or _bad_values(error, watcher)


def _assert(watcher: Watcher) -> tuple[Trouble, Located] | None:
    trouble = _trouble(watcher, "exception", [])
    watcher.shield.busy = True
    try:
        located = locate_assert(trouble, watcher.calls)
    except RuntimeError as own:
        if not is_device_assert(own):
            raise
        located = None
    finally:
        watcher.shield.busy = False
    if located is None:
        warn(say("watch.device_assert"))
        return None
    trouble.step, trouble.device_lost = located.step, True
    return trouble, located


def _index(error: BaseException, watcher: Watcher) -> tuple[Trouble, Located] | None:
    trouble = _trouble(watcher, "exception", [])
    failing = watcher.recorder.failing
    outside = failing[0] if failing and failing[1] is error and failing[0].kind != "module" else None
    watcher.shield.busy = True
    try:
        located = locate_index(trouble, watcher.calls, outside)
    finally:
        watcher.shield.busy = False
    return None if located is None else (trouble, located)


def _bad_values(error: BaseException, watcher: Watcher) -> tuple[Trouble, Located] | None:
    recorder = watcher.recorder
    sinks = bad_tensors_of(error, recorder.failing, asked_about(recorder.tape.entries))
    last = recorder.tape.entries[-1] if recorder.tape.entries else None
    died_in_backward = last is not None and last.kind == "backward" and not last.finished
    # a NaN that it was given may be in nobody's hands any more
    may_be_fed_nan = isinstance(error, torch.linalg.LinAlgError)  # type: ignore[attr-defined]
    if not sinks and not died_in_backward and not may_be_fed_nan:
        return None
    seen_in = "gradients" if died_in_backward and not sinks else "exception"
    trouble = _trouble(watcher, seen_in, sinks)
    trouble.last_updates = watcher.updates.last_of_each.latest_first
    look_at(trouble)
    watcher.shield.busy = True
    try:
        located = locate(trouble, watcher.calls)
    finally:
        watcher.shield.busy = False
    if located is None or located.by == "recorded facts":
        return None
    if located.phase == "data" and (recorder.failing is None or recorder.failing[1] is not error):
        return None  # something not finite lay about; nothing says that it ended the program
    return trouble, located


def _trouble(watcher: Watcher, seen_in: str, sinks: list[tuple[str, torch.Tensor]]) -> Trouble:
    watcher.outside.leave_for_good()
    recorder = watcher.recorder
    trouble = Trouble(watcher.step, seen_in, recorder.tape, tuple(recorder.finished), sinks)
    trouble.live = watcher.live
    if trouble.live is not None:
        trouble.live.pause()
    return trouble
