"""What Dynamo makes of a model is the same with and without a watch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.eval_frame import _debug_get_cache_entry_list
from torch._dynamo.testing import CompileCounter

import nanwatch


class Layers(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def guards_of_a_compiled_model(layers: int) -> int:
    torch._dynamo.reset()
    torch.compile(Layers(layers), backend="eager")(torch.randn(2, 4))
    codes = {Layers.forward.__code__, nn.Module.__call__.__code__}
    entries = [entry for code in codes for entry in _debug_get_cache_entry_list(code)]
    assert len(entries) == 1
    return str(entries[0].guard_manager).count("+- ")


def test_compiled_under_a_watch_a_layer_has_no_more_guards(tmp_path: Path) -> None:
    each = guards_of_a_compiled_model(6) - guards_of_a_compiled_model(2)
    assert each > 0
    with nanwatch.watch(dir=tmp_path):
        assert guards_of_a_compiled_model(6) - guards_of_a_compiled_model(2) == each


def test_a_model_compiled_before_a_watch_stays_compiled(tmp_path: Path) -> None:
    torch._dynamo.reset()
    x, made = torch.randn(2, 4), CompileCounter()
    compiled = torch.compile(Layers(3), backend=made)
    for _ in range(2):
        compiled(x).sum().backward()
        with nanwatch.watch(dir=tmp_path):
            compiled(x).sum().backward()
    assert made.frame_count == 1


def test_dynamo_has_torchs_own_call_back_afterwards(tmp_path: Path) -> None:
    from torch._dynamo import utils
    from torch._dynamo.variables import nn_module

    own = nn.Module.__call__
    with nanwatch.watch(dir=tmp_path):
        assert nn.Module.__call__ is not own
        assert utils.unpatched_nn_module_call is nn_module.unpatched_nn_module_call is nn.Module.__call__
    assert utils.unpatched_nn_module_call is nn_module.unpatched_nn_module_call is nn.Module.__call__ is own


DYNAMO_COMES_WITH_TWO_WATCHES_OPEN = """
import sys, tempfile
import torch
import nanwatch
own = torch.nn.Module.__call__
watches = [nanwatch.watch(dir=tempfile.mkdtemp()) for _ in range(2)]
assert "torch._dynamo.utils" not in sys.modules
from torch._dynamo import utils
from torch._dynamo.variables import nn_module
for watch in (watches if sys.argv[1] == "first" else reversed(watches)):
    watch.close()
assert utils.unpatched_nn_module_call is nn_module.unpatched_nn_module_call is torch.nn.Module.__call__ is own
"""


@pytest.mark.parametrize("closed", ["first", "last"])
def test_dynamo_has_torchs_own_call_back_after_two_watches(tmp_path: Path, closed: str) -> None:
    program = [sys.executable, "-c", DYNAMO_COMES_WITH_TWO_WATCHES_OPEN, closed]
    done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr


def trained_in_place(model: nn.Module, made: CompileCounter) -> None:
    """Dynamo passes over torch's own Sequential, and with it over all that is in it."""
    model.compile(backend=made)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 4)).square().mean().backward()
        optimizer.step()


def trained_in_parts(model: nn.Module, made: CompileCounter) -> None:
    part = Layers(2)
    trained_in_place(part, made)
    trained_in_place(nn.Sequential(model, part), CompileCounter())


def trained_by_a_compiled_step(model: nn.Module, made: CompileCounter) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    step = torch.compile(step, backend=made)
    for _ in range(3):
        step(torch.randn(4, 4))


@pytest.mark.parametrize("train", [trained_in_place, trained_in_parts, trained_by_a_compiled_step])
@pytest.mark.filterwarnings("ignore")
def test_what_is_compiled_of_a_training_is_the_same(tmp_path: Path, train: Callable[..., None]) -> None:
    def compiled() -> tuple[int, int, list[float]]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        made, model = CompileCounter(), nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
        train(model, made)
        weights = [weight for parameter in model.parameters() for weight in parameter.flatten().tolist()]
        return made.frame_count, made.op_count, weights

    plain = compiled()
    with nanwatch.watch(dir=tmp_path) as session:
        assert compiled() == plain
        assert not session.watcher.shield.broken and session.watcher.outside.listening


def test_our_own_code_is_not_compiled_where_dynamo_looks(tmp_path: Path) -> None:
    import torch._dynamo.convert_frame as convert_frame

    torch._dynamo.reset()
    with nanwatch.watch(dir=tmp_path):
        trained_by_a_compiled_step(nn.Sequential(nn.Linear(4, 4)), CompileCounter())
        seen = [code().co_filename for code in convert_frame.input_codes.seen]
    assert seen and not [name for name in seen if "nanwatch" in name and "/tests/" not in name]
