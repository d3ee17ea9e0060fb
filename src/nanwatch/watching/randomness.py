"""The states of the random number generators that a step may draw from: torch's, Python's and NumPy's."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from nanwatch.watching.cpu_generator import CpuGenerator
from nanwatch.watching.device_assert import is_device_assert

WORDS = 624 * 4
"""Bytes of the state of a Mersenne twister, which both Python and NumPy use, without the position in it."""

CudaState = torch.Tensor | tuple[int, int]
"""Of a generator on a GPU: its seed, and how far it has come, which is quicker to ask for than a tensor that
holds both; or that tensor where an older torch does not tell."""

GeneratorState = tuple[Any, Any]
"""A generator of torch, Python or NumPy, and its state."""


@dataclass(slots=True, frozen=True)
class Rng:
    """torch's states, of the CPU and of each device in use; Python's and NumPy's where a model may draw."""

    cpu: torch.Tensor
    cuda: tuple[tuple[int, CudaState], ...] = ()
    python: Any = None
    numpy: Any = None
    """All of NumPy's state, or only its words as bytes: a microsecond to read those, forty for all of it."""

    @staticmethod
    def now() -> Rng:
        """torch's states alone."""
        return Rng(_cpu.state(), _cuda_states())

    @staticmethod
    def of_all(numpy_draws: bool = True) -> Rng:
        """All states. `numpy_draws`: whether the call about to be made is known to draw from NumPy. Mostly it
        is not, and nobody has drawn anything since the last time, or on a GPU alone."""
        global _last
        cuda = _cuda_states() if getattr(torch.cuda, "_initialized", True) else ()
        if numpy_draws:
            return Rng(_cpu.state(), cuda, python_state(), numpy_state())
        marks, last = _marks(), _last
        if marks is None or last is None or last[0] != marks:
            _last = last = marks, Rng(_cpu.state(), (), python_state(), numpy_words())
        same = last[1]
        return Rng(same.cpu, cuda, same.python, same.numpy) if cuda else same

    def put_back(self) -> None:
        torch.set_rng_state(self.cpu)
        for index, state in self.cuda:
            _put_cuda_state(torch.cuda.default_generators[index], state)
        if self.python is not None:
            random.setstate(_whole_of_python(self.python))
        if self.numpy is not None and (type(self.numpy) is not bytes or self.numpy_drew()):
            sys.modules["numpy"].random.set_state(_whole_of_numpy(self.numpy))

    def numpy_drew(self) -> bool:
        """Whether NumPy's words are others now. (All of its state is taken only where it is known to.)"""
        if type(self.numpy) is not bytes:
            return False
        words = numpy_words()  # mostly the very same: else equal ones, where a state was set back meanwhile
        return words is not self.numpy and words != self.numpy


def states_of(generators: Iterable[Any]) -> list[GeneratorState]:
    """The states of the generators among these values, of which nothing else is asked."""
    numpy = sys.modules.get("numpy.random")
    kinds = [torch.Generator, random.Random, *([numpy.Generator, numpy.RandomState] if numpy else [])]
    return [(g, state_of(g)) for g in generators if any(type(g) is kind for kind in kinds)]


def state_of(generator: Any) -> Any:
    if type(generator) is random.Random:
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return copy.deepcopy(generator.bit_generator.state)
    return generator.get_state()


def put_state(generator: Any, state: Any) -> None:
    if type(generator) is random.Random:
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


@contextlib.contextmanager
def drawn_again(rng: Rng | None, generators: Iterable[GeneratorState]) -> Iterator[None]:
    """For a call that is made once more: it draws what it drew then, and nobody else notices."""
    generators = list(generators)
    now, theirs = Rng.now(), states_of(generator for generator, _ in generators)
    try:
        if rng is not None:
            rng.put_back()
        for generator, state in generators:
            put_state(generator, state)
        yield
    finally:
        now.put_back()
        for generator, state in theirs:
            put_state(generator, state)


def python_state() -> Any:
    """Python's state as (position and words as bytes, the number it has in store), or as it gives it itself
    where its memory cannot be read so."""
    twister = _twister_of_python()
    if twister is None:
        return random.getstate()
    return twister.state(), random._inst.gauss_next  # type: ignore[attr-defined]


def _whole_of_python(state: Any) -> Any:
    if not isinstance(state[0], bytes):
        return state
    position, *words = _numbers(state[0])
    return 3, (*words, position), state[1]


@functools.cache
def _twister_of_python() -> Twister | None:
    """Python's generator in memory, or None if it is not what we take it for."""
    generator: Any = getattr(random, "_inst", None)
    size = object.__basicsize__ + 4 + WORDS
    if generator is None or type(generator) is not random.Random or random.Random.__basicsize__ < size:
        return None
    twister = Twister(id(generator) + object.__basicsize__)
    readable = _whole_of_python((twister.state(), vars(generator)["gauss_next"])) == random.getstate()
    return twister if readable else None


def numpy_state() -> Any:
    numpy = sys.modules.get("numpy.random")
    return None if numpy is None else numpy.get_state(legacy=False)


def numpy_words() -> Any:
    """The words of NumPy's generator as bytes; all of its state where it is not the usual one."""
    global _mtrand, _numpy_seen
    if _mtrand is None:
        _mtrand = sys.modules.get("numpy.random.mtrand")
        if _mtrand is None:
            return None
    bits = _mtrand._rand._bit_generator
    if _numpy_seen is None or _numpy_seen[0] is not bits:
        usual = type(bits).__name__ == "MT19937"
        _numpy_seen = bits, Twister(bits.ctypes.state_address) if usual else None
    twister = _numpy_seen[1]
    return numpy_state() if twister is None else twister.state()


class Twister:
    """A Mersenne twister in memory: its words and the position in them. All words change when the position
    has come to their end, and no two states are alike in some words only: a few of them tell whether the
    state is still the one that was read last."""

    def __init__(self, address: int) -> None:
        words = (ctypes.c_uint32 * (WORDS // 4 + 1)).from_address(address)
        self.memory = memoryview(words).cast("B").cast("I")
        self._seen: tuple[int, ...] = ()
        self._state = b""

    def state(self) -> bytes:
        memory = self.memory
        seen = memory[0], memory[312], memory[624]
        if seen != self._seen:
            self._seen, self._state = seen, memory.tobytes()
        return self._state


_mtrand: Any = None
"""NumPy's own module of its generator, once the program has loaded it."""
_numpy_seen: tuple[Any, Twister | None] | None = None
"""NumPy's generator, and its memory."""


def _whole_of_numpy(state: Any) -> Any:
    if not isinstance(state, bytes):
        return state
    *words, position = _numbers(state)
    return "MT19937", words, position, 0, 0.0


def _numbers(memory: bytes) -> list[int]:
    return [int.from_bytes(memory[i : i + 4], sys.byteorder) for i in range(0, len(memory), 4)]


def _marks() -> tuple[Any, ...] | None:
    """Some bytes of the states of all generators on the host, by which it is known whether one has changed;
    None where it is not. To read them takes one function, the states four times as many."""
    python, numpy, sides = _twister_of_python(), _numpy_seen, _cpu.sides
    if python is None or numpy is None or numpy[1] is None or sides is None:
        return None
    if _mtrand._rand._bit_generator is not numpy[0]:
        return None
    ours, theirs, (before, behind) = python.memory, numpy[1].memory, sides
    gauss = random._inst.gauss_next  # type: ignore[attr-defined]
    of_python = ours[0], ours[312], ours[624], gauss
    return of_python, (theirs[0], theirs[312], theirs[624]), before.tobytes(), behind.tobytes()


_cpu = CpuGenerator(torch.default_generator)
_last: tuple[tuple[Any, ...] | None, Rng] | None = None
"""What was read last, and its marks."""
_has_offset = hasattr(torch.Generator, "get_offset")


def _cuda_state(generator: torch.Generator) -> CudaState:
    if not _has_offset:
        return generator.get_state()
    return generator.initial_seed(), generator.get_offset()


def _put_cuda_state(generator: torch.Generator, state: CudaState) -> None:
    if isinstance(state, torch.Tensor):
        generator.set_state(state)
    else:
        generator.manual_seed(state[0])
        generator.set_offset(state[1])


def _cuda_states() -> tuple[tuple[int, CudaState], ...]:
    if not torch.cuda.is_initialized():
        return ()
    try:
        if torch.cuda.is_current_stream_capturing():
            return ()
        return tuple([(i, _cuda_state(g)) for i, g in enumerate(torch.cuda.default_generators)])
    except RuntimeError as error:
        if is_device_assert(error):
            return ()
        raise
