"""Functions that torch has in Python are recorded without torch's own way of asking for modes: whoever else
wants to know of them still does, and the program gets what it would get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import nanwatch

ORIGINALS = {m: m.handle_torch_function for m in (F, torch.functional, torch._tensor)}


class Listening(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.heard.append(function)
        return function(*args, **(kwargs or {}))


class Marked(Tensor):
    heard: list[Any] = []

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.heard.append(function)
        return super().__torch_function__(function, types, args, kwargs)


def recorded(session: nanwatch.Session) -> list[Any]:
    return [entry.call for entry in session.watcher.recorder.tape.entries]


@pytest.fixture
def session(tmp_path: Path) -> Any:
    with nanwatch.watch(dir=tmp_path, audit_seconds=0.0, audit_share=0.0) as opened:
        yield opened


def test_they_are_recorded_and_the_way_is_free_again_afterwards(tmp_path: Path) -> None:
    logits, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    expected = F.cross_entropy(logits, target)
    with nanwatch.watch(dir=tmp_path, audit_seconds=0.0, audit_share=0.0) as session:
        assert torch.equal(F.cross_entropy(logits, target), expected)
        torch.einsum("ij,ij->i", logits, logits)
        calls = recorded(session)
        assert F.cross_entropy in calls and torch.einsum in calls
        assert torch._C._len_torch_function_stack() == 1
    assert torch._C._len_torch_function_stack() == 0
    assert {m: m.handle_torch_function for m in ORIGINALS} == ORIGINALS


def test_a_mode_of_the_program_hears_them_too(session: nanwatch.Session) -> None:
    with Listening() as mode:
        F.cross_entropy(torch.randn(4, 3), torch.tensor([0, 1, 2, 0]))
    assert F.cross_entropy in mode.heard
    assert F.cross_entropy in recorded(session)


def test_a_tensor_of_the_programs_own_kind_is_asked(session: nanwatch.Session) -> None:
    Marked.heard.clear()
    result = F.layer_norm(torch.randn(4, 3).as_subclass(Marked), (3,))
    assert F.layer_norm in Marked.heard
    assert isinstance(result, Marked)


def test_an_error_leaves_the_mode_where_it_was(session: nanwatch.Session) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        F.cross_entropy(torch.randn(4, 3), torch.tensor([0, 1]))
    F.softmax(torch.randn(3), 0)
    assert F.softmax in recorded(session)


def test_a_backward_from_there_is_one_step(session: nanwatch.Session) -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(4, 3)), torch.tensor([0, 1, 2, 0])).backward()
        optimizer.step()
    assert [facts.events for facts in session.history] == [("forward", "backward", "step")] * 3
    assert session.watcher.outside.listening and torch._C._len_torch_function_stack() == 1


def test_a_compiled_function_that_calls_them_is_one_graph(session: nanwatch.Session) -> None:
    logits, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(F.layer_norm(logits, (3,)), target)

    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    assert torch.equal(compiled(logits, target), loss(logits, target))


def test_a_default_device_set_under_a_watch_stays_where_torch_wants_it(session: nanwatch.Session) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.set_default_device("cpu")
    try:
        for _ in range(2):
            model(torch.randn(2, 4)).mean().backward()
            optimizer.step()
            assert torch.get_default_device() == torch.device("cpu")
    finally:
        torch.set_default_device(None)
    assert torch._C._len_torch_function_stack() == 1, "ours alone"
    session.close()
    assert torch._C._len_torch_function_stack() == 0
