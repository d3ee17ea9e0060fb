"""Inside `with plain_dispatch():` a torch call reaches its kernel, and nothing and nobody in between.

No TorchFunctionMode or TorchDispatchMode sees it, nor our own tap on ops, autocast does not cast it, autograd
does not record it, no functorch level wraps it. One C++ guard costs less than leaving each mode by itself.
"""

from __future__ import annotations

from types import TracebackType

import torch

from nanwatch.tensors.own_key import OWN_KEY

_KEY_NAMES = (
    "Python",
    "PythonTLSSnapshot",
    "PythonDispatcher",
    "ADInplaceOrView",
    "AutogradCPU",
    "AutogradCUDA",
    "AutogradNestedTensor",
    "AutogradOther",
    "FuncTorchDynamicLayerFrontMode",
    "FuncTorchDynamicLayerBackMode",
    "FuncTorchBatched",
    "FuncTorchBatchedDecomposition",
    "FuncTorchVmapMode",
    "FuncTorchGradWrapper",
    "Functionalize",
    "AutocastCPU",
    "AutocastCUDA",
    "AutocastMPS",
    "AutocastXPU",
    "AutocastHPU",
    "AutocastIPU",
    "AutocastPrivateUse1",
)


def _skipped_keys() -> torch._C.DispatchKeySet:
    known = torch._C.DispatchKey.__members__
    keys = torch._C.DispatchKeySet(OWN_KEY)
    for name in _KEY_NAMES:
        if name in known:
            keys = keys.add(known[name])
    return keys


_SKIPPED_KEYS = _skipped_keys()


class plain_dispatch:
    """Two C++ guards, entered and left in order."""

    __slots__ = ("_dispatch", "_function")

    def __enter__(self) -> None:
        self._function = torch._C.DisableTorchFunction()
        self._dispatch = torch._C._ExcludeDispatchKeyGuard(_SKIPPED_KEYS)
        try:
            self._function.__enter__()
            self._dispatch.__enter__()
        except BaseException as error:  # of a signal handler: nobody else would leave what was entered
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dispatch.__exit__(kind, error, trace)
        self._function.__exit__(kind, error, trace)
