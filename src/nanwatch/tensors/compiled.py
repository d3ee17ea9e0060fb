"""Compiles `kernels.c` for this machine, once per user, and never in anybody's way.

The first request starts the compiler as a separate process and returns at once; a later request finds the
library ready. Until then, and whenever anything fails (no compiler, no writable cache, a broken library),
the answer is None and the caller uses torch. Nothing ever waits, except `wait_until_ready`, for benchmarks,
tests and scans. `NANWATCH_NO_CC=1` switches all of it off.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch

FLAGS = "-O3 -std=gnu11 -fopenmp-simd -fno-math-errno -fno-trapping-math -shared -fPIC -pthread"
OPENMP = ("libgomp", "libiomp", "libomp")
COMPILERS = ("cc", "gcc", "clang")
SECONDS_BETWEEN_LOOKS = 0.05
POLITE = 10
"""How nice a thread is that may wait."""
COMPILE_THEN_RENAME = """
umask 077
trap 'rm -f "$0"' EXIT
for machine in "-march=native -mprefer-vector-width=512" "-march=native" ""; do
    "$1" $machine $4 "$2" -o "$0" && mv -f "$0" "$3" && break
done
"""

_SOURCE = Path(__file__).with_name("kernels.c")
_library: ctypes.CDLL | None = None
_compiler: subprocess.Popen[bytes] | None = None
_target: Path | None = None
_settled = False
_next_look = 0.0


def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None while there are none. Starts the compiler when called first."""
    if _settled or time.monotonic() < _next_look:
        return _library
    try:
        _look()
    except Exception:
        _settle(None)
    return _library


def wait_until_ready(seconds: float = 60.0) -> bool:
    """Waits for the compiler; whether the compiled kernels can be used."""
    deadline = time.monotonic() + seconds
    while library() is None and not _settled and time.monotonic() < deadline:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return _library is not None


def _look() -> None:
    global _compiler, _target, _next_look
    if _target is None:
        if os.environ.get("NANWATCH_NO_CC", "") not in ("", "0"):
            return _settle(None)
        compiler = _find_compiler()
        _target = _cache_folder() / f"kernels-{_fingerprint(compiler)}.so"
        if not _target.exists():
            if compiler is None:
                return _settle(None)
            _compiler = _start(compiler, _target)
    if _target.exists():
        return _settle(_load(_target))
    if _compiler is None or _compiler.poll() is not None:
        return _settle(None)
    _next_look = time.monotonic() + SECONDS_BETWEEN_LOOKS
    return None


def _settle(found: ctypes.CDLL | None) -> None:
    global _library, _settled, _compiler
    _library, _settled = found, True
    if _compiler is not None:
        _reap(_compiler)
    _compiler = None


def _reap(compiler: subprocess.Popen[bytes]) -> None:
    try:
        compiler.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        pass


def _find_compiler() -> str | None:
    wanted = (os.environ.get("CC", ""), *COMPILERS)
    return next((found for name in wanted if name and (found := shutil.which(name))), None)


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "nanwatch"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _fingerprint(compiler: str | None) -> str:
    made_by = os.path.realpath(compiler) if compiler else "none"
    parts = [_SOURCE.read_text(), FLAGS, made_by, _cpu()]
    if compiler:
        about = os.stat(made_by)
        parts.append(f"{about.st_size} {about.st_mtime_ns}")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _cpu() -> str:
    """The model and the instruction sets: code made for one processor may not run on the next."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as described:
            first = described.read(8192).split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    telling = ("model name", "flags", "Features", "CPU part", "CPU implementer")
    return "\n".join(line for line in first if line.startswith(telling))


def _start(compiler: str, target: Path) -> subprocess.Popen[bytes]:
    """The shell renames the finished file, so the work is not lost when this program ends first."""
    unfinished = target.with_suffix(f".{os.getpid()}.{time.time_ns()}.tmp")
    arguments = [str(unfinished), compiler, str(_SOURCE), str(target), FLAGS]
    return subprocess.Popen(
        ["/bin/sh", "-c", COMPILE_THEN_RENAME, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _load(path: Path) -> ctypes.CDLL:
    about = path.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise PermissionError(f"{path} could have been written by somebody else")
    found = ctypes.CDLL(str(path))
    pointer, count, small = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    found.nanwatch_statistics.argtypes = [pointer, count, small, small, pointer]
    found.nanwatch_finite.argtypes = [pointer, count, small, small]
    found.nanwatch_squares.argtypes = [pointer, pointer, pointer, count, small]
    found.nanwatch_squares.restype = ctypes.c_double
    found.nanwatch_bytes.argtypes = [pointer, count, pointer]
    found.nanwatch_checksums.argtypes = [pointer, pointer, pointer, count, pointer, small]
    with_lock = ctypes.PyDLL(str(path))  # it keeps the interpreter's lock
    found.__dict__["nanwatch_squares_of"] = with_lock.nanwatch_squares_of
    found.nanwatch_squares_of.argtypes = [pointer, pointer, count, count, pointer, small, small]
    found.nanwatch_squares_of.restype = ctypes.c_double
    found.__dict__["nanwatch_places_of"] = with_lock.nanwatch_places_of
    found.nanwatch_places_of.argtypes = [pointer, pointer, count, small, pointer, pointer]
    found.__dict__["nanwatch_judge"] = with_lock.nanwatch_judge
    found.nanwatch_judge.argtypes = [pointer, pointer, pointer, pointer, pointer]
    found.nanwatch_use_team.argtypes = [pointer]
    found.nanwatch_use_team(_team_of_torch())
    return found


def stay_behind() -> None:
    """For a thread beside the training: its loops, torch's as well, run in itself alone, and it runs when the
    training leaves it room. Where that cannot be had it runs as others do."""
    torch.get_num_threads()  # sets this thread up as torch wants it
    openmp = _openmp()
    if openmp is not None:
        openmp.omp_set_num_threads(1)  # of this thread
    if sys.platform == "linux":  # elsewhere a priority is a process's, and a thread's number is another one's
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), POLITE)


@functools.cache
def _openmp() -> ctypes.CDLL | None:
    """The OpenMP library that torch runs its loops with, where there is exactly one. It is looked for once:
    the list of what a process has loaded is long."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            files = {line.split(maxsplit=5)[5].strip() for line in maps if "omp" in line and ".so" in line}
        (path,) = (file for file in files if os.path.basename(file).startswith(OPENMP))
        return ctypes.CDLL(path)
    except (OSError, ValueError, IndexError):
        return None


def _team_of_torch() -> int | None:
    try:
        return ctypes.cast(_openmp().GOMP_parallel, ctypes.c_void_p).value  # type: ignore[union-attr]
    except AttributeError:
        return None


def _forked() -> None:
    """A team does not survive a fork."""
    if _library is not None:
        _library.nanwatch_use_team(None)


os.register_at_fork(after_in_child=_forked)
