"""A script run unmodified under a tool, in this process."""

from __future__ import annotations

import runpy
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any


def launch(tool: ModuleType, script: Path, folder: Path) -> dict[str, Any]:
    """The exit code, and how long it took. The traceback of an error is printed, as Python would."""
    path = str(script.resolve())
    sys.argv[:] = [path]
    sys.path[0] = str(Path(path).parent)
    code, began = 0, time.perf_counter()
    try:
        with tool.watching(Path(path), folder) as stand_in:
            if stand_in is None:
                runpy.run_path(path, run_name="__main__")
            else:
                stand_in()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    return {"code": code, "seconds": time.perf_counter() - began}
