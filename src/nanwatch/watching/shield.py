"""nanwatch failing must never fail the training: it says so once, steps aside, and the program goes on."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from nanwatch.errors import NonFiniteError
from nanwatch.messages import say
from nanwatch.signals import from_a_handler
from nanwatch.watching.beside_modes import beside_modes
from nanwatch.watching.device_assert import is_device_assert

_grad_is_on, _set_grad = torch.is_grad_enabled, torch._C._set_grad_enabled
_without_modes = torch._C.DisableTorchFunction
_dispatch_modes = torch._C._len_torch_dispatch_stack
_frame_callback = torch._C._dynamo.eval_frame.get_eval_frame_callback
_set_frame_callback = torch._C._dynamo.eval_frame.set_eval_frame

P = ParamSpec("P")
R = TypeVar("R")


class Shield:
    """Runs nanwatch's own code so that only `NonFiniteError` leaves it, and what a signal handler of the
    program raises meanwhile.

    Python looks for signals when a function is called and after it: where something must not be left half
    done, nothing is called in between."""

    def __init__(self, step_aside: Callable[[], None], interrupted: Callable[[], None]) -> None:
        self._step_aside = step_aside
        self._interrupted = interrupted
        self.broken = False
        self.busy = False
        """True while nanwatch's own code runs: what it calls is not the program's doing."""

    def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        if self.broken or self.busy:
            return None
        compiling, grad = None, _grad_is_on()
        self.busy = True
        try:
            compiling = _frame_callback()
            if compiling:
                _set_frame_callback(None)  # a function under torch.compile is running: ours are none of it
            with _without_modes():  # those of the program must not see what we do
                return beside_modes(work, *args, **kwargs) if _dispatch_modes() else work(*args, **kwargs)
        except NonFiniteError:
            raise
        except Exception as error:
            if _grad_is_on() is not grad:
                _set_grad(grad)  # a signal between the two halves of a `no_grad`
            self.give_up(error)
            return None
        finally:
            self.busy = False
            if compiling:
                _set_frame_callback(compiling)

    def give_up(self, error: BaseException) -> None:
        if from_a_handler(error):
            self._interrupted()
            raise error
        if self.broken or is_device_assert(error):
            return  # the program's own fault, which it meets at its next call
        self.broken = True
        try:
            self._step_aside()
        except Exception:
            pass
        warn(say("watch.stepped_aside", error=describe(error)))


def describe(error: BaseException) -> str:
    """The error in one line, with where in nanwatch it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def warn(sentence: str) -> None:
    """One line on stderr, whatever state stderr is in."""
    try:
        print(sentence, file=sys.stderr, flush=True)
    except Exception:
        pass
