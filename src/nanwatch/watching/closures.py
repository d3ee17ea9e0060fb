"""Optimizers that call the model themselves (LBFGS): every evaluation is judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from nanwatch.watching.held_back import Copies
from nanwatch.watching.sentinel import gradients_of

if TYPE_CHECKING:
    from nanwatch.watching.updates import Updates
    from nanwatch.watching.watcher import Watcher


def closure_among(args: Any, kwargs: Any) -> Callable[..., Any] | None:
    """The function among the arguments of a step that calls the model."""
    if len(args) < 2 and not kwargs:
        return None
    named = kwargs.get("closure")
    closure = named if named is not None else (args[1] if len(args) > 1 else None)
    return closure if callable(closure) else None


class Closures:
    def __init__(self, watcher: Watcher, updates: Updates) -> None:
        self._watcher = watcher
        self._updates = updates
        self.copies: Copies | None = None
        """Of an optimizer that calls the model itself, while its step is under way."""

    def watched(self, closure: Callable[..., Any], optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """The step's arguments with the closure wrapped."""
        self._watcher.now.closure = True
        self._mend_before_the_model_is_called(optimizer)
        self.copies = Copies.of(optimizer) if self._updates.holds_back else None
        judged = self._judged(closure, optimizer)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": judged}
        return (args[0], judged, *args[2:]), kwargs

    def put_copies_back(self) -> None:
        """The step is over."""
        copies, self.copies = self.copies, None
        if copies is not None and "skip" in self._watcher.now.events:
            copies.give_back()

    def _mend_before_the_model_is_called(self, optimizer: Optimizer) -> None:
        """No rank has to wait here: only where this one trains alone. Not if this step's gradients are bad
        already: they are judged after the closure."""
        watcher, updates = self._watcher, self._updates
        if watcher.lockstep.groups:
            return
        damage = updates.lasting.damage(watcher.step)
        if damage is None or self._is_bad_so_far(optimizer):
            return
        action = updates.told_of(damage, optimizer)
        if action == "rollback":
            watcher.roll_back(damage.good_until)
        elif action == "skip":
            updates.lasting.mend(damage)

    def _is_bad_so_far(self, optimizer: Optimizer) -> bool:
        watcher = self._watcher
        if not watcher.recorder.tape.backwards:
            return False
        return watcher.backwards.judge(gradients_of(optimizer), None).bad is not None

    def _judged(self, closure: Callable[..., Any], optimizer: Optimizer) -> Callable[..., Any]:
        run = self._watcher.shield.run
        given_up: list[Any] = []

        def judged(*args: Any, **kwargs: Any) -> Any:
            if given_up:  # this step is skipped: it need not call the model again
                run(self._stand_still)
                return given_up[0]
            run(self._begins)
            result = closure(*args, **kwargs)
            if run(self._done, optimizer):
                given_up.append(result)
            return result

        return judged

    def _begins(self) -> None:
        self._watcher.now.updating = False
        self._watcher.listen()

    def _done(self, optimizer: Optimizer) -> bool:
        """Whether the step is to be skipped."""
        watcher = self._watcher
        watcher.stand_aside()
        watcher.now.updating = True
        is_bad = self._updates.judge_evaluation(optimizer)
        skipped = is_bad and self.copies is not None
        if skipped:
            self._stand_still()
        watcher.trace_the_update()
        return skipped

    def _stand_still(self) -> None:
        """As far as the optimizer can see, there is nothing to be gained."""
        if self.copies is not None:
            self.copies.stand_still()
