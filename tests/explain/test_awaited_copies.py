"""A copy to the host is suspect when it is read before anybody has waited for it, and only then."""

from __future__ import annotations

import sys
from typing import Any

import torch

from nanwatch.explain.awaited_copies import AwaitedCopies
from nanwatch.watching.stack import Stack, take_stack

ADD, SLICE, COPY = torch.ops.aten.add.Tensor, torch.ops.aten.slice.Tensor, torch.ops.aten.copy_.default


def places(count: int) -> list[Stack]:
    return [(*take_stack(sys._getframe())[:1], (take_stack.__code__, n)) for n in range(count)]


def told(*events: Any) -> list[Stack]:
    copies = AwaitedCopies()
    for name, *given in events:
        getattr(copies, name)(*given)
    return copies.suspects()


def test_read_at_once() -> None:
    first, second = places(2)
    a, b = torch.zeros(3), torch.zeros(3)
    read = ("ran", ADD, (a[1:], 1), {})
    assert told(("copied", second, b), ("copied", first, a), read) == [first]


def test_waited_for_in_between() -> None:
    (place,) = places(1)
    a = torch.zeros(3)
    assert told(("copied", place, a), ("waited",), ("ran", ADD, (a, 1), {})) == []


def test_waiting_before_the_copy_does_not_help() -> None:
    (place,) = places(1)
    a = torch.zeros(3)
    assert told(("waited",), ("copied", place, a), ("ran", ADD, (a, 1), {})) == [place]


def test_a_view_and_a_new_copy_read_nothing() -> None:
    first, second = places(2)
    a, b = torch.zeros(3), torch.zeros(3)
    looked_at = ("ran", SLICE, (a, 0, 0, 2), {}), ("ran", COPY, (a, torch.ones(3)), {})
    early = ("ran", ADD, (b, 1), {})
    assert told(("copied", first, a), ("copied", second, b), *looked_at, early) == [second]


def test_what_no_op_reads_may_be_read_by_numpy() -> None:
    first, second = places(2)
    a, b = torch.zeros(3), torch.zeros(3)
    assert told(("copied", first, a), ("waited",), ("copied", second, b)) == [second]
