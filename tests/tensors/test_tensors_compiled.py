"""The C kernels: compiled once, in the background, and never missed when they cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from nursery import Nursery

from nanwatch.tensors import compiled, statistics

LOOK = "from nanwatch.tensors import *; from nanwatch.tensors import compiled; import torch; "
MEASURE = "assert numbers(torch.ones(9)).norm == 3.0; assert is_finite(torch.ones(9)); "


Python = Callable[..., str]


@pytest.fixture
def python(nursery: Nursery, tmp_path: Path) -> Python:
    """What a program prints that has nanwatch.tensors at hand."""

    def prints(code: str, **environment: str) -> str:
        script = tmp_path / "script.py"
        script.write_text(LOOK + code)
        done = nursery.run([str(script)], tmp_path, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return prints


needs_compiler = pytest.mark.skipif(compiled._find_compiler() is None, reason="no C compiler here")


@needs_compiler
def test_the_first_call_does_not_wait_and_the_second_process_finds_the_library(
    tmp_path: Path, python: Python
) -> None:
    first = "print(compiled.library() is None, wait_until_ready()); " + MEASURE
    assert python(first, XDG_CACHE_HOME=str(tmp_path)) == "True True"
    assert python("print(compiled.library() is None)", XDG_CACHE_HOME=str(tmp_path)) == "False"
    assert [file.suffix for file in (tmp_path / "nanwatch").iterdir()] == [".so"]


@needs_compiler
def test_the_work_is_not_lost_when_the_program_ends_first(tmp_path: Path, python: Python) -> None:
    python("compiled.library()", XDG_CACHE_HOME=str(tmp_path))
    assert python("print(wait_until_ready())", XDG_CACHE_HOME=str(tmp_path)) == "True"


FAILURES = {
    "switched off": {"NANWATCH_NO_CC": "1"},
    "no compiler": {"PATH": "", "CC": ""},
    "a compiler that fails": {"CC": "false"},
    "no cache": {"XDG_CACHE_HOME": "/dev/null"},
}


@pytest.mark.parametrize("name", FAILURES)
def test_torch_takes_over_when_there_is_no_library(name: str, tmp_path: Path, python: Python) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path), **FAILURES[name]}
    assert python("print(wait_until_ready()); " + MEASURE, **environment) == "False"


@needs_compiler
def test_a_broken_library_is_left_alone(tmp_path: Path, python: Python) -> None:
    python("wait_until_ready()", XDG_CACHE_HOME=str(tmp_path))
    (library,) = (tmp_path / "nanwatch").iterdir()
    library.write_bytes(b"not a library")
    assert python("print(wait_until_ready()); " + MEASURE, XDG_CACHE_HOME=str(tmp_path)) == "False"


@needs_compiler
def test_a_library_others_could_have_written_is_not_loaded(tmp_path: Path, python: Python) -> None:
    python("wait_until_ready()", XDG_CACHE_HOME=str(tmp_path))
    (library,) = (tmp_path / "nanwatch").iterdir()
    library.chmod(0o777)
    assert python("print(wait_until_ready()); " + MEASURE, XDG_CACHE_HOME=str(tmp_path)) == "False"


def test_importing_brings_in_neither_triton_nor_the_compiler_of_torch() -> None:
    heavy = (
        "print([m for m in ('triton', 'torch._dynamo', 'torch._inductor') if m in __import__('sys').modules])"
    )
    done = subprocess.run([sys.executable, "-c", LOOK + heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_op_is_one_node_of_a_full_graph() -> None:
    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        return y.sum(), torch.ops.nanwatch.statistics(y)

    x = torch.randn(8, requires_grad=True)
    total, seven = torch.compile(step, fullgraph=True, backend="aot_eager")(x)
    total.backward()
    assert x.grad is not None and not seven.requires_grad
    assert torch.equal(seven, statistics(x * 2))


def test_the_op_passes_the_checks_of_torch() -> None:
    torch.library.opcheck(torch.ops.nanwatch.statistics.default, (torch.randn(5, 3),))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a priority is a process's")
def test_a_thread_that_stays_behind_leaves_the_others_as_they_are() -> None:
    seen: list[tuple[int, int]] = []

    def now() -> tuple[int, int]:
        return torch.get_num_threads(), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def beside() -> None:
        compiled.stay_behind()
        seen.append(now())

    before = now()
    thread = threading.Thread(target=beside)
    thread.start()
    thread.join()
    assert now() == before
    threads, priority = seen[0]
    assert priority >= compiled.POLITE and threads <= before[0]
    if compiled._openmp() is not None:
        assert threads == 1
