"""A Python program found by path or by module name, set up and run as `python` itself would."""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import sys
import types
from dataclasses import dataclass
from typing import Any

from nanwatch.errors import NanwatchError
from nanwatch.messages import say


@dataclass
class Program:
    """What to run: compiled code, and what `__main__` looks like while it runs."""

    name: str
    file: str
    code: types.CodeType
    argv: list[str]
    first_path: str
    command: tuple[str, ...]
    spec: Any = None

    @property
    def folder(self) -> str:
        return os.path.dirname(os.path.abspath(self.file))

    def prepare(self) -> None:
        """`sys.argv`, `sys.path[0]` and `__main__` as the program expects them."""
        sys.argv[:] = self.argv
        _set_first_path(self.first_path)
        main = types.ModuleType("__main__")
        spec = self.spec
        loader = importlib.machinery.SourceFileLoader("__main__", self.file) if spec is None else spec.loader
        main.__dict__.update(
            __annotations__={},
            __builtins__=builtins,
            __cached__=None if spec is None else spec.cached,
            __file__=self.file,
            __loader__=loader,
            __package__=None if spec is None else spec.parent,
            __spec__=spec,
        )
        sys.modules["__main__"] = main
        if "__mp_main__" in sys.modules:  # its name in spawned processes, and in what they send back
            sys.modules["__mp_main__"] = main

    def run(self) -> None:
        exec(self.code, sys.modules["__main__"].__dict__)


def _set_first_path(path: str) -> None:
    if sys.path and not sys.flags.safe_path:
        sys.path[0] = path


def find_script(arguments: list[str]) -> Program:
    """A Python file, or a folder or zip archive with a `__main__.py` in it."""
    if not arguments:
        raise NanwatchError(say("cli.no_script"))
    path, *rest = arguments
    if not path:
        raise NanwatchError(say("cli.no_name"))
    if not os.path.exists(path):
        raise NanwatchError(say("cli.missing_script", path=path, cwd=os.getcwd()))
    bundle = _find_in_bundle(path, rest)
    if bundle is not None:
        return bundle
    if os.path.isdir(path):
        raise NanwatchError(say("cli.directory", path=path))
    file = os.path.join(os.getcwd(), path)
    folder = os.path.dirname(os.path.realpath(path))
    code = _compile(file, path)
    return Program(os.path.basename(path), file, code, arguments, folder, tuple(arguments))


def _find_in_bundle(path: str, rest: list[str]) -> Program | None:
    place = os.path.abspath(path)
    importer = pkgutil.get_importer(place)
    spec = None if importer is None else importer.find_spec("__main__", None)
    if spec is None or spec.origin is None or not os.path.abspath(spec.origin).startswith(place + os.sep):
        return None
    name = os.path.basename(place)
    return Program(name, spec.origin, _code_of(spec), [path, *rest], place, (path, *rest), spec)


def _compile(file: str, path: str) -> types.CodeType:
    try:
        with io.open_code(file) as opened:
            source = opened.read()
    except OSError as error:
        raise NanwatchError(say("cli.unreadable_script", path=path, why=error.strerror)) from None
    try:
        return compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise NanwatchError(say("cli.not_python", path=path, why=_one_line(error))) from None


def _one_line(error: SyntaxError | ValueError) -> str:
    if isinstance(error, SyntaxError) and error.lineno:
        return f"line {error.lineno}: {error.msg}"
    return " ".join(str(error).split())


def find_module(name: str, arguments: list[str]) -> Program:
    """What `python -m name` would run. A package on the way is imported, and may fail in its own way."""
    sys.argv[:] = ["-m", *arguments]
    _set_first_path(os.getcwd())
    spec = _spec_of(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _spec_of(f"{name}.__main__")
        if spec is None:
            raise NanwatchError(say("cli.package_without_main", module=name))
    if spec is None or spec.origin is None or spec.loader is None:
        raise _no_such_module(name)
    argv = [spec.origin, *arguments]
    return Program(name, spec.origin, _code_of(spec), argv, os.getcwd(), ("-m", name, *arguments), spec)


def _no_such_module(name: str) -> NanwatchError:
    return NanwatchError(say("cli.no_such_module", module=name, cwd=os.getcwd(), python=sys.executable))


def _code_of(spec: importlib.machinery.ModuleSpec) -> types.CodeType:
    assert spec.loader is not None
    try:
        code: types.CodeType | None = spec.loader.get_code(spec.name)  # type: ignore[attr-defined]
    except (SyntaxError, ValueError) as error:
        raise NanwatchError(say("cli.not_python", path=spec.origin, why=_one_line(error))) from None
    except (ImportError, AttributeError):
        code = None
    if code is None:
        raise _no_such_module(spec.name)
    return code


def _spec_of(name: str) -> importlib.machinery.ModuleSpec | None:
    """None when there is no such module; an error inside a parent package is the program's own."""
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}.") or error.name is None:
            return None
        raise
    except ValueError:  # no name
        return None
    except ImportError:
        if name.startswith("."):
            return None
        raise
