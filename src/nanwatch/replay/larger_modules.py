"""The larger module that a root is a part of: `layers.3.mlp.up` of a decoder whose layers the program calls
one by one. Looked for when there is something to report; nothing is kept while the program runs."""

from __future__ import annotations

import gc

from torch import nn

WRAPPERS = ("_orig_mod",)
DEEPEST = 20


def path_within(root: nn.Module | None, path: str | None) -> str | None:
    """The path of the module at `path` of `root` in the largest living module that `root` is a part of; None
    when there is no larger one, or when it is in two places."""
    if root is None or path is None:
        return None
    parents: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in [o for o in gc.get_objects() if issubclass(type(o), nn.Module)]:
        for name, child in (module.__dict__.get("_modules") or {}).items():
            if child is not None:
                parents.setdefault(id(child), []).append((module, name))
    parts = [path] if path else []
    module = root
    for _ in range(DEEPEST):
        above = parents.get(id(module), [])
        if not above:
            break
        if len(above) > 1:
            return None
        module, name = above[0]
        parts = parts if name in WRAPPERS else [name, *parts]
    return ".".join(parts) if module is not root and parts != ([path] if path else []) else None
