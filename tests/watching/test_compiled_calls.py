"""What Dynamo makes of a model is the same with and without a watch."""

from __future__ import annotations

import subprocess
import sys
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
