"""Work that a traced thread hands to a pool of threads is traced there too.

A mode of torch belongs to the thread that has entered it: what a model gives to other threads, such as
experts that are computed on the CPU, would go on unseen. So a task takes along the modes of nanwatch that
are on where it is submitted, and leaves them when it is done.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import _pop_mode, _push_mode

from nanwatch.signals import let_through
from nanwatch.watching import op_tap
from nanwatch.watching.stack import Stack, is_library, stack_within, take_stack
from nanwatch.watching.tasks_under_way import noted
from nanwatch.watching.wrapping import Wrappers

LONGEST_WAIT = 2.0
"""Seconds a task waits for its turn. One that itself waits for another would wait for ever."""

_dispatch_depth = torch._C._len_torch_dispatch_stack
_dispatch_at = torch._C._get_dispatch_stack_at
_function_depth = torch._C._len_torch_function_stack
_function_at = torch._C._get_function_stack_at
_push_function_mode = torch._C._push_on_torch_function_stack
_pop_function_mode = torch._C._pop_torch_function_stack


@dataclass(frozen=True)
class Handed:
    """Where the work of this thread comes from."""

    stack: Stack = ()
    modules: tuple[nn.Module, ...] = ()


class Taken(NamedTuple):
    """What is on where a task is handed over, the innermost last."""

    listener: Any = None
    """Of our tap on ops."""
    dispatch: tuple[Any, ...] = ()
    functions: tuple[Any, ...] = ()

    @property
    def hears_ops(self) -> bool:
        return self.listener is not None or bool(self.dispatch)


NOTHING = Taken()


@dataclass
class Turns:
    """Tasks run one after the other."""

    lock: threading.Lock
    threads: set[int]
    """Those that have run a task."""
    at_once: bool = False
    """Each is done before whoever hands it over goes on."""
    kept: bool = True
    """No task had to be let in before its turn."""


_of_thread = threading.local()
_turns: Turns | None = None
_handed_over = False
_has_pools = False
_taps: set[int] = set()
"""On at the same time: of a watch, and of a trace inside it."""


def has_pools() -> bool:
    """Whether the program gives work of its own to other threads, traced or not."""
    return _has_pools


def _is_of_the_program(function: Any) -> bool:
    """Libraries have pools too, to read files or send logs."""
    code = getattr(function, "__code__", None)
    return code is None or not is_library(code.co_filename)


def were_handed_over() -> bool:
    """Whether any traced work was given to other threads in this process."""
    return _handed_over


def handed() -> Handed:
    """What the task that this thread runs was handed; nothing in a thread that runs on its own account."""
    return getattr(_of_thread, "handed", None) or Handed()


class WorkerThreads:
    """The tap on pools of threads."""

    def __init__(self) -> None:
        self._wrappers = Wrappers()

    def install(self) -> None:
        global _has_pools, _handed_over
        if not _taps:  # threads that began under an earlier watch of this process, and live, are seen as such
            _has_pools = _handed_over = False
        _taps.add(id(self))
        original: Any = ThreadPoolExecutor.submit

        def submit(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            global _has_pools
            mine = _is_of_the_program(function)
            _has_pools = _has_pools or mine
            if mine:
                function = _noted(function, args, kwargs)
            taken = _taken_along()
            if taken == NOTHING:
                return original(pool, function, *args, **kwargs)
            task = functools.partial(_run, function, taken, _handing_over(sys._getframe(1)))
            future = original(pool, task, *args, **kwargs)
            if _turns is not None and _turns.at_once and _turns.kept:
                _turns.kept = bool(wait([future], LONGEST_WAIT).done) and _turns.kept
            return future

        self._wrappers.put(ThreadPoolExecutor, "submit", submit)
        start_thread: Any = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            global _has_pools, _handed_over
            work = getattr(thread, "_target", None) or thread.run
            mine = _is_of_the_program(work)
            if mine:
                _has_pools = True
                _handed_over = _handed_over or _taken_along().hears_ops
                _note_thread(thread, work)
            start_thread(thread)
            if mine and _turns is not None and _turns.at_once and _turns.kept:
                _turns.threads.add(id(thread))
                thread.join(LONGEST_WAIT)
                _turns.kept = not thread.is_alive()

        self._wrappers.put(threading.Thread, "start", start)

    def uninstall(self) -> None:
        _taps.discard(id(self))
        self._wrappers.take_off()


def _noted(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same function, with a record of what it can reach; as it is where that fails."""
    try:
        task = noted(function, args, kwargs, take_stack(sys._getframe(2)))
    except Exception as error:
        let_through(error)
        return function

    def run_noted(*args: Any, **kwargs: Any) -> Any:
        result = None
        try:
            result = function(*args, **kwargs)
        finally:
            with contextlib.suppress(Exception):
                task.ended(result)
        return result

    return run_noted


def _note_thread(thread: threading.Thread, work: Any) -> None:
    """A thread that the program starts itself is a task, too."""
    given = getattr(thread, "_args", ()), getattr(thread, "_kwargs", {})
    try:
        task = noted(work, *given, take_stack(sys._getframe(2)))
    except Exception as error:
        let_through(error)
        return
    run = thread.run

    def run_noted() -> None:
        try:
            run()
        finally:
            with contextlib.suppress(Exception):
                del thread.run
                task.ended()

    thread.run = run_noted  # type: ignore[method-assign]


@contextlib.contextmanager
def one_at_a_time(at_once: bool = False) -> Iterator[Turns]:
    """Tasks that take modes along run one after the other, in whatever threads. `at_once`: and nothing else
    goes on beside them."""
    global _turns
    _turns = turns = Turns(threading.Lock(), set(), at_once)
    try:
        yield turns
    finally:
        _turns = None


def _taken_along() -> Taken:
    listener = op_tap.listener()
    return Taken(
        listener if listener is not None and _goes_along(listener) else None,
        tuple(filter(_goes_along, _dispatch_modes())),
        tuple(filter(_goes_along, (_function_at(i) for i in range(_function_depth())))),
    )


def _dispatch_modes() -> list[Any]:
    return [_dispatch_at(i) for i in range(_dispatch_depth())]


def _goes_along(mode: Any) -> bool:
    """A mode of the program's own stays in its thread, as torch has it."""
    return type(mode).__module__.startswith("nanwatch.") and getattr(mode, "goes_along", True)


def _handing_over(frame: Any) -> Handed:
    global _handed_over
    _handed_over = True
    tracer = next((m for m in (op_tap.listener(), *_dispatch_modes()) if hasattr(m, "scope")), None)
    before = handed()
    stack = stack_within(frame, getattr(tracer, "boundary", None)) + before.stack
    return Handed(stack, before.modules if tracer is None else tracer.scope.now())


def _run(function: Callable[..., Any], taken: Taken, origin: Handed, /, *args: Any, **kwargs: Any) -> Any:
    before, _of_thread.handed = handed(), origin
    with _in_turn():
        for mode in taken.functions:
            _push_function_mode(mode)
        for mode in taken.dispatch:
            _push_mode(mode)
        if taken.listener is not None:
            op_tap.tell(taken.listener)
        try:
            return function(*args, **kwargs)
        finally:
            if taken.listener is not None:
                op_tap.tell_nobody()
            for _ in taken.dispatch:
                _pop_mode()
            for _ in taken.functions:
                _pop_function_mode()
            _of_thread.handed = before


@contextlib.contextmanager
def _in_turn() -> Iterator[None]:
    turns = _turns
    if turns is None:
        yield
        return
    turns.threads.add(threading.get_ident())
    mine = turns.lock.acquire(timeout=LONGEST_WAIT)
    turns.kept = turns.kept and mine
    try:
        yield
    finally:
        if mine:
            turns.lock.release()
