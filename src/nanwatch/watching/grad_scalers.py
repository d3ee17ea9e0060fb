"""The taps on GradScaler. Kinds of it with methods of their own, such as FSDP's, are followed there."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.amp.grad_scaler import GradScaler

from nanwatch.watching.about_models import living

if TYPE_CHECKING:
    from nanwatch.watching.functional import Run, Wrap
    from nanwatch.watching.scaling import Scaling


def follow_scalers(wrap: Wrap, ours: Callable[[], bool], run: Run, scaling: Scaling) -> None:
    following = _FollowingScalers(wrap, ours, run, scaling)
    wrap(GradScaler, "__init__", following.init)
    for kind in {GradScaler, *map(type, living(GradScaler))}:
        following.follow(kind)


class _FollowingScalers:
    """Makes the wrappers, each for the class that has the method."""

    def __init__(self, wrap: Wrap, ours: Callable[[], bool], run: Run, scaling: Scaling) -> None:
        self._wrap, self._ours, self._run, self._scaling = wrap, ours, run, scaling
        self._followed: set[type] = set()

    def follow(self, kind: type) -> None:
        makers = {"scale": self._scale, "unscale_": self._unscale, "step": self._step, "update": self._update}
        for owner in kind.__mro__:
            if issubclass(owner, GradScaler) and owner not in self._followed:
                self._followed.add(owner)
                for name, make in makers.items():
                    if name in vars(owner):
                        self._wrap(owner, name, functools.partial(make, owner))

    def init(self, original: Any) -> Any:
        def __init__(scaler: Any, *args: Any, **kwargs: Any) -> None:
            original(scaler, *args, **kwargs)
            if type(scaler) not in self._followed and self._ours():
                self._run(self.follow, type(scaler))

        return __init__

    def _is_ours(self, scaler: Any, owner: type, name: str) -> bool:
        """Not where the method of another kind has called this one, which is followed itself."""
        if not self._ours() or not scaler._enabled:
            return False
        return next(kind for kind in type(scaler).__mro__ if name in vars(kind)) is owner

    def _scale(self, owner: type, original: Any) -> Any:
        def scale(scaler: Any, outputs: Any) -> Any:
            scaled = original(scaler, outputs)
            if self._is_ours(scaler, owner, "scale"):
                self._run(self._scaling.scaled, outputs, scaled)
            return scaled

        return scale

    def _unscale(self, owner: type, original: Any) -> Any:
        def unscale_(scaler: Any, optimizer: Any) -> Any:
            result = original(scaler, optimizer)
            if self._is_ours(scaler, owner, "unscale_"):
                self._run(self._scaling.unscaled)
            return result

        return unscale_

    def _step(self, owner: type, original: Any) -> Any:
        run, scaling = self._run, self._scaling

        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._is_ours(scaler, owner, "step"):
                return original(scaler, optimizer, *args, **kwargs)
            run(scaling.step_begins, scaler, sys._getframe(1))
            try:
                result = original(scaler, optimizer, *args, **kwargs)
            except BaseException:
                run(scaling.step_failed, optimizer)
                raise
            if run(scaling.step_done, optimizer):
                run(scaling.step_begins, scaler, sys._getframe(1))
                result = original(scaler, optimizer, *args, **kwargs)
                run(scaling.step_done, optimizer)
            return result

        return step

    def _update(self, owner: type, original: Any) -> Any:
        def update(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_ours(scaler, owner, "update"):
                self._run(self._scaling.update_begins, scaler)
            result = original(scaler, *args, **kwargs)
            if self._is_ours(scaler, owner, "update"):
                self._run(self._scaling.updated, scaler)
            return result

        return update
