"""A Python program found by path or by module name, set up and run as `python` itself would."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
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
    arguments: list[str]
    first_path: str
    command: tuple[str, ...]
    spec: Any = None

    @property
    def folder(self) -> str:
        return os.path.dirname(os.path.abspath(self.file))

    def prepare(self) -> None:
        """`sys.argv`, `sys.path[0]` and `__main__` as the program expects them."""
        sys.argv[:] = [self.file, *self.arguments]
        if sys.path and not getattr(sys.flags, "safe_path", False):
            sys.path[0] = self.first_path
        main = types.ModuleType("__main__")
        main.__dict__.update(
            __file__=self.file, __builtins__=__builtins__, __spec__=self.spec, __cached__=None
        )
        main.__dict__["__package__"] = None if self.spec is None else self.spec.parent
        main.__loader__ = (
            importlib.machinery.SourceFileLoader("__main__", self.file)
            if self.spec is None
            else self.spec.loader
        )
        sys.modules["__main__"] = main

    def run(self) -> None:
        exec(self.code, sys.modules["__main__"].__dict__)


def find_script(arguments: list[str]) -> Program:
    if not arguments:
        raise NanwatchError(say("cli.no_script"))
    path, *rest = arguments
    if os.path.isdir(path):
        if os.path.isfile(os.path.join(path, "__main__.py")):
            return _program(os.path.join(path, "__main__.py"), rest, path, (path, *rest))
        raise NanwatchError(say("cli.directory", path=path))
    if not os.path.exists(path):
        raise NanwatchError(say("cli.missing_script", path=path, cwd=os.getcwd()))
    return _program(path, rest, os.path.dirname(os.path.realpath(path)), (path, *rest))


def _program(path: str, rest: list[str], first_path: str, command: tuple[str, ...]) -> Program:
    return Program(os.path.basename(path), path, _compile(path), rest, first_path, command)


def _compile(path: str) -> types.CodeType:
    try:
        with io.open_code(os.path.abspath(path)) as file:
            source = file.read()
    except OSError as error:
        raise NanwatchError(say("cli.unreadable_script", path=path, why=error.strerror)) from None
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        why = str(error) if isinstance(error, ValueError) else f"line {error.lineno}: {error.msg}"
        raise NanwatchError(say("cli.not_python", path=path, why=why)) from None


def find_module(name: str, arguments: list[str]) -> Program:
    if sys.path and sys.path[0] != os.getcwd():
        sys.path[0] = os.getcwd()
    spec = _spec_of(name)
    if spec is not None and spec.submodule_search_locations is not None:
        package, spec = name, _spec_of(f"{name}.__main__")
        if spec is None:
            raise NanwatchError(say("cli.package_without_main", module=package))
    if spec is None or spec.origin is None or spec.loader is None:
        raise NanwatchError(say("cli.no_such_module", module=name, cwd=os.getcwd(), python=sys.executable))
    code = spec.loader.get_code(spec.name)  # type: ignore[attr-defined]
    if code is None:
        raise NanwatchError(say("cli.no_such_module", module=name, cwd=os.getcwd(), python=sys.executable))
    command = ("-m", name, *arguments)
    return Program(name, spec.origin, code, arguments, os.getcwd(), command, spec)


def _spec_of(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
