"""The state of torch's generator, remembered while nothing is drawn: always the one that torch would give."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nanwatch.watching import cpu_generator
from nanwatch.watching.cpu_generator import CpuGenerator

DRAWS: list[Callable[[torch.Generator, int], object]] = [
    lambda g, n: torch.rand(n, generator=g),
    lambda g, n: torch.randn(n, generator=g),
    lambda g, n: torch.randn(n, generator=g, dtype=torch.float64),
    lambda g, n: torch.randint(n + 1, (3,), generator=g),
    lambda g, n: torch.randperm(n, generator=g),
    lambda g, n: torch.bernoulli(torch.full((n,), 0.5), generator=g),
    lambda g, n: torch.multinomial(torch.ones(n + 1), 1, generator=g),
    lambda g, n: torch.empty(n).exponential_(generator=g),
    lambda g, n: g.manual_seed(n),
    lambda g, n: g.set_state(torch.Generator().manual_seed(n).get_state()),
    lambda g, n: None,
]


def test_it_is_read_from_memory_here() -> None:
    """Else the other tests would show nothing."""
    assert CpuGenerator(torch.Generator()).sides is not None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(DRAWS) - 1), st.sampled_from([1, 2, 15, 16, 17, 624, 700]))))
def test_it_is_what_torch_gives_after_whatever_was_drawn(draws: list[tuple[int, int]]) -> None:
    generator = torch.Generator()
    followed = CpuGenerator(generator)
    for kind, count in draws:
        DRAWS[kind](generator, count)
        assert torch.equal(followed.state(), generator.get_state())


def test_nothing_is_asked_while_nothing_is_drawn() -> None:
    generator = torch.Generator()
    followed = CpuGenerator(generator)
    first = followed.state()
    assert followed.state() is first
    torch.rand(1, generator=generator)
    assert followed.state() is not first


def test_where_its_memory_is_another_torch_is_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_generator, "FARTHEST", 8)
    generator = torch.Generator()
    followed = CpuGenerator(generator)
    assert followed.sides is None
    torch.randn(1, generator=generator)
    assert torch.equal(followed.state(), generator.get_state())
