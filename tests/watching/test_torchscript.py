"""TorchScript compiles under a watch what it compiles without one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.jit._builtins as builtins
from torch import nn

import nanwatch

Watch = Callable[..., nanwatch.Session]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Box:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = doubled(x)


class Squares:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x.square()


def test_a_class_finds_the_names_of_its_file(watch: Watch) -> None:
    with watch() as session:
        torch.jit.script(Box)
        torch.jit.script(Squares, None, 0)
        assert not session.watcher.shield.broken

    @torch.jit.script
    def boxed(x: torch.Tensor) -> torch.Tensor:
        return Box(x).x

    assert boxed(torch.ones(2)).tolist() == [2.0, 2.0]


def slope(x: torch.Tensor) -> torch.Tensor:
    gradient = torch.autograd.grad([x.pow(2).sum()], [x])[0]
    assert gradient is not None
    return gradient


def descended(x: torch.Tensor) -> torch.Tensor:
    loss = x.pow(2).sum()
    loss.backward()
    torch.autograd.backward([x.pow(2).sum()])
    return loss


@pytest.mark.parametrize("first", [False, True], ids=["its table is there", "its table is made now"])
def test_derivatives_inside_it_are_builtins_still(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    table = None if first else dict(builtins._get_builtin_table())
    monkeypatch.setattr(builtins, "_builtin_ops", list(builtins._builtin_ops))
    monkeypatch.setattr(builtins, "_builtin_table", table)
    listed = list(builtins._builtin_ops)
    with watch() as session:
        assert torch.jit.script(slope)(torch.ones(3, requires_grad=True)).tolist() == [2.0] * 3
        torch.jit.script(descended)(torch.ones(3, requires_grad=True))
        wrappers = {id(torch.autograd.grad), id(torch.autograd.backward)}
        assert wrappers <= builtins._get_builtin_table().keys()
        assert not session.watcher.shield.broken
    assert not wrappers & builtins._get_builtin_table().keys()
    assert not wrappers & {id(known) for known, _ in builtins._builtin_ops}
    assert first or builtins._builtin_ops == listed


def test_a_frozen_model_is_followed(watch: Watch) -> None:
    model = torch.jit.freeze(torch.jit.script(nn.Linear(2, 1).eval()))
    with watch() as session, torch.no_grad():
        model(torch.ones(1, 2))
        assert not session.watcher.shield.broken
        with pytest.raises(nanwatch.NonFiniteError):
            model(torch.full((1, 2), torch.nan))
