"""The states of the random number generators that a step may draw from: torch's, Python's and NumPy's."""

from __future__ import annotations

import ctypes
import functools
import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

WORDS = 624 * 4
"""Bytes of the state of a Mersenne twister, which both Python and NumPy use, without the position in it."""

GeneratorState = tuple[torch.Generator, torch.Tensor]


@dataclass(slots=True, frozen=True)
class Rng:
    """torch's states, of the CPU and of each device in use; Python's and NumPy's where a model may draw."""

    cpu: torch.Tensor
    cuda: tuple[tuple[int, torch.Tensor], ...] = ()
    python: Any = None
    numpy: Any = None
    """All of NumPy's state, or only its words as bytes: a microsecond to read those, forty for all of it."""

    @staticmethod
    def now() -> Rng:
        """torch's states alone."""
        return Rng(torch.get_rng_state(), _cuda_states())

    @staticmethod
    def of_all(numpy_draws: bool = True) -> Rng:
        """All states. `numpy_draws`: whether the call about to be made is known to draw from NumPy."""
        numpy = numpy_state() if numpy_draws else numpy_words()
        return Rng(torch.get_rng_state(), _cuda_states(), python_state(), numpy)

    def put_back(self) -> None:
        torch.set_rng_state(self.cpu)
        for index, state in self.cuda:
            torch.cuda.default_generators[index].set_state(state)
        if self.python is not None:
            random.setstate(_whole_of_python(self.python))
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(_whole_of_numpy(self.numpy))

    def numpy_drew(self) -> bool:
        """Whether NumPy's words are others now. (All of its state is taken only where it is known to.)"""
        return isinstance(self.numpy, bytes) and numpy_words() != self.numpy


def states_of(generators: Iterable[Any]) -> list[GeneratorState]:
    """The states of the torch.Generators among these values."""
    return [(g, g.get_state()) for g in generators if isinstance(g, torch.Generator)]


def python_state() -> Any:
    """Python's state as (position and words as bytes, the number it has in store), or as it gives it itself
    where its memory cannot be read so."""
    if not _python_is_readable():
        return random.getstate()
    generator: Any = random._inst
    return ctypes.string_at(id(generator) + object.__basicsize__, 4 + WORDS), generator.gauss_next


def _whole_of_python(state: Any) -> Any:
    if not isinstance(state[0], bytes):
        return state
    position, *words = _numbers(state[0])
    return 3, (*words, position), state[1]


@functools.cache
def _python_is_readable() -> bool:
    """Whether the memory of Python's generator is what we take it for."""
    generator: Any = getattr(random, "_inst", None)
    size = object.__basicsize__ + 4 + WORDS
    if generator is None or type(generator) is not random.Random or random.Random.__basicsize__ < size:
        return False
    memory = ctypes.string_at(id(generator) + object.__basicsize__, 4 + WORDS)
    return bool(_whole_of_python((memory, vars(generator)["gauss_next"])) == random.getstate())


def numpy_state() -> Any:
    numpy = sys.modules.get("numpy.random")
    return None if numpy is None else numpy.get_state(legacy=False)


def numpy_words() -> Any:
    """The words of NumPy's generator as bytes; all of its state where it is not the usual one."""
    numpy = sys.modules.get("numpy.random")
    if numpy is None:
        return None
    bits = numpy.mtrand._rand._bit_generator
    if type(bits).__name__ != "MT19937":
        return numpy_state()
    return ctypes.string_at(bits.ctypes.state_address, WORDS + 4)


def _whole_of_numpy(state: Any) -> Any:
    if not isinstance(state, bytes):
        return state
    *words, position = _numbers(state)
    return "MT19937", words, position, 0, 0.0


def _numbers(memory: bytes) -> list[int]:
    return [int.from_bytes(memory[i : i + 4], sys.byteorder) for i in range(0, len(memory), 4)]


def _cuda_states() -> tuple[tuple[int, torch.Tensor], ...]:
    if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
        return ()
    return tuple((i, g.get_state()) for i, g in enumerate(torch.cuda.default_generators))
