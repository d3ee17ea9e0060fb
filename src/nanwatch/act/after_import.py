"""Something to do as soon as a module has been imported: at once if it is there already."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

Work = Callable[[ModuleType], None]


class AfterImport(MetaPathFinder):
    """Stands first in `sys.meta_path` until `end`: a program may import its framework after we have begun."""

    def __init__(self) -> None:
        self._work: dict[str, Work] = {}

    def do(self, name: str, work: Work) -> None:
        module = sys.modules.get(name)
        if module is not None and not _is_being_imported(module):
            work(module)
            return
        self._work[name] = work
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def end(self) -> None:
        self._work.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._work:
            return None
        others = [f for f in sys.meta_path if f is not self and hasattr(f, "find_spec")]
        spec = next((s for f in others if (s := f.find_spec(fullname, path, target)) is not None), None)
        loader = spec.loader if spec is not None else None
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        plain = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.__dict__["exec_module"]
            plain(module)
            work = self._work.pop(fullname, None)
            if work is not None:
                work(module)

        loader.__dict__["exec_module"] = exec_module
        return spec


def _is_being_imported(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
