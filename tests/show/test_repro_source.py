"""repro.py for real calls: encoded, saved, run in the same process or by itself, judged by its exit code."""

from __future__ import annotations

import contextlib
import io
import json
import math
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.utils._python_dispatch import TorchDispatchMode

from nanwatch.records import Birth, Incident, Numbers
from nanwatch.show.op_call import encode_scalar
from nanwatch.show.repro import encode_call, operand_bytes, repro_source

aten = torch.ops.aten
INF, NAN = math.inf, math.nan


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def incident_of(kind: str, op: str = "aten.log.default") -> Incident:
    birth = Birth(op, "net.head", "train.py", 19, code="loss = x.log()")
    return Incident(step=5, rank=0, kind=kind, phase="forward", birth=birth, action="raised")


def write_repro(folder: Path, op: Any, args: tuple, kwargs: dict, kind: str, rng: Any = None) -> Path:
    names = [a.name for a in op._schema.arguments]
    spec, tensors = encode_call(args, kwargs, is_tensor, names, rng)
    spec = json.loads(json.dumps(spec, allow_nan=False))
    save_file(tensors, folder / "tensors.safetensors")
    path = folder / "repro.py"
    path.write_text(repro_source(str(op), spec, incident_of(kind, str(op))), encoding="utf-8")
    return path


def run_here(path: Path) -> tuple[int, str]:
    printed = io.StringIO()
    state = torch.get_rng_state()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(path), run_name="__main__")
    torch.set_rng_state(state)
    return int(stopped.value.code or 0), printed.getvalue()


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANWATCH_LANG", "en")


def half(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float16)


def channels_last() -> torch.Tensor:
    return torch.full((2, 3, 4, 4), 6e4).half().to(memory_format=torch.channels_last)


def conv_backward() -> tuple:
    x, w = torch.rand(2, 3, 5, 5), torch.full((4, 3, 3, 3), 2.0)
    grad = torch.full((2, 4, 3, 3), 3e38)
    return (grad, x, w, [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False])


CALLS: dict[str, Callable[[], tuple[Any, tuple, dict, str]]] = {
    "log of 0": lambda: (aten.log.default, (torch.tensor([0.0, 1.0]),), {}, "inf"),
    "log of -1": lambda: (aten.log.default, (torch.tensor(-1.0),), {}, "nan"),
    "div 0/0": lambda: (aten.div.Tensor, (torch.zeros(3), torch.zeros(3)), {}, "nan"),
    "div by scalar": lambda: (aten.div.Scalar, (torch.ones(3), 0.0), {}, "inf"),
    "mul by inf": lambda: (aten.mul.Scalar, (torch.zeros(3), INF), {}, "nan"),
    "add with -inf alpha": lambda: (aten.add.Tensor, (torch.ones(2), torch.ones(2)), {"alpha": -INF}, "inf"),
    "same tensor twice": lambda: (lambda x: (aten.mul.Tensor, (x, x), {}, "inf"))(torch.full((3,), 1e30)),
    "addmm overflow in fp16": lambda: (
        aten.addmm.default,
        (half(1, 1), torch.full((2, 64), 200.0).half(), torch.full((2, 64), 200.0).half().t()),
        {},
        "inf",
    ),
    "softmax of all -inf": lambda: (aten._softmax.default, (torch.full((2, 4), -INF), -1, False), {}, "nan"),
    "cat of a list": lambda: (aten.cat.default, ([torch.ones(2), torch.tensor([NAN])], 0), {}, "nan"),
    "complex": lambda: (aten.log.default, (torch.zeros(2, 2, dtype=torch.complex64),), {}, "inf"),
    "complex scalar": lambda: (
        aten.mul.Scalar,
        (torch.ones((), dtype=torch.complex128), complex(INF, 0)),
        {},
        "nan",
    ),
    "conjugate view": lambda: (
        aten.reciprocal.default,
        (torch.zeros(2, dtype=torch.complex64).conj(),),
        {},
        "nan",
    ),
    "in place": lambda: (aten.add_.Tensor, (half(6e4, 1), half(6e4, 1)), {}, "inf"),
    "in place on a slice": lambda: (aten.div_.Tensor, (torch.ones(4, 4)[:, 1], torch.zeros(4)), {}, "inf"),
    "convolution_backward": lambda: (aten.convolution_backward.default, conv_backward(), {}, "inf"),
    "index_put_ with None": lambda: (
        aten.index_put_.default,
        (torch.zeros(3, 4), [None, torch.tensor([1, 3])], torch.full((3, 2), NAN)),
        {},
        "nan",
    ),
    "_to_copy": lambda: (aten._to_copy.default, (torch.tensor([1e6]),), {"dtype": torch.float16}, "inf"),
    "full": lambda: (
        aten.full.default,
        ([2, 2], -INF),
        {"dtype": torch.float32, "layout": torch.strided, "device": torch.device("cpu"), "pin_memory": False},
        "inf",
    ),
    "full_like": lambda: (
        aten.full_like.default,
        (channels_last(), NAN),
        {"memory_format": torch.preserve_format},
        "nan",
    ),
    "clone to channels_last": lambda: (
        aten.clone.default,
        (torch.full((1, 2, 3, 3), INF),),
        {"memory_format": torch.channels_last},
        "inf",
    ),
    "foreach": lambda: (aten._foreach_log.default, ([torch.ones(2), torch.zeros(3)],), {}, "inf"),
    "foreach in place": lambda: (
        aten._foreach_div_.List,
        ([torch.ones(2), torch.ones(3)], [torch.ones(2), torch.zeros(3)]),
        {},
        "inf",
    ),
    "expanded": lambda: (aten.log.default, (torch.zeros(1, 1).expand(300, 300),), {}, "inf"),
    "overlapping windows": lambda: (aten.log.default, (torch.arange(6.0).unfold(0, 3, 1),), {}, "inf"),
    "channels_last": lambda: (aten.mul.Tensor, (channels_last(), channels_last()), {}, "inf"),
    "float8": lambda: (
        aten._to_copy.default,
        (torch.tensor([NAN]).to(torch.float8_e5m2),),
        {"dtype": torch.float32},
        "nan",
    ),
    "float8 as bytes": lambda: (
        aten._to_copy.default,
        (torch.tensor([1.0, NAN]).to(torch.float8_e4m3fnuz),),
        {"dtype": torch.float32},
        "nan",
    ),
    "sparse": lambda: (
        aten.mul.Tensor,
        (torch.tensor([[0.0, 1.0]]).to_sparse(), torch.tensor(INF)),
        {},
        "inf",
    ),
    "csr": lambda: (
        aten.mm.default,
        (torch.tensor([[0.0, 1e30]]).to_sparse_csr(), torch.full((2, 2), 1e30)),
        {},
        "inf",
    ),
    "several outputs": lambda: (
        aten.native_layer_norm.default,
        (half(6e4, -6e4).float() * 1e34, [2], None, None, 1e-5),
        {},
        "nan",
    ),
    "string": lambda: (
        aten.div.Tensor_mode,
        (torch.ones(2), torch.zeros(2)),
        {"rounding_mode": "floor"},
        "inf",
    ),
    "embedding, integer operand": lambda: (
        aten.embedding.default,
        (torch.full((3, 2), NAN), torch.tensor([0, 2])),
        {},
        "nan",
    ),
    "empty operand": lambda: (aten.mean.default, (torch.zeros(0, 3),), {}, "nan"),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_op_alone_shows_the_same_kind_of_value(name: str, tmp_path: Path) -> None:
    op, args, kwargs, kind = CALLS[name]()
    code, printed = run_here(write_repro(tmp_path, op, args, kwargs, kind))
    assert code == 0, printed
    assert printed.splitlines()[0] == str(op)
    shown = {"nan": "NaN", "inf": "Inf"}[kind]
    assert printed.splitlines()[-1] == f"The same kind of value is seen again: {shown}."
    assert "   <- non-finite" in printed


def test_it_runs_by_itself_and_reads_well(tmp_path: Path) -> None:
    scores = torch.tensor([[-INF, -INF], [0.0, 1.0]])
    path = write_repro(tmp_path, aten._softmax.default, (scores, -1, False), {}, "nan")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "aten._softmax.default",
        "in self: [2, 2] float32 nan=0 +inf=0 -inf=2 min=0 max=1 mean=0.5   <- non-finite",
        "out result: [2, 2] float32 nan=2 +inf=0 -inf=0 min=0.2689 max=0.7311 mean=0.5   <- non-finite",
        "The same kind of value is seen again: NaN.",
    ]
    source = path.read_text(encoding="utf-8")
    assert source.splitlines()[:4] == [
        "# The op where the NaN was born, alone, with the operands it had.",
        "# aten._softmax.default (net.head)",
        "# train.py:19 loss = x.log()",
        "# Run it with: python repro.py",
    ]
    assert "    return torch.ops.aten._softmax.default(operand('self'), -1, False)\n" in source


def test_a_value_that_does_not_come_again_exits_with_1(tmp_path: Path) -> None:
    path = write_repro(tmp_path, aten.log.default, (torch.ones(2),), {}, "nan")
    code, printed = run_here(path)
    assert code == 1
    assert printed.splitlines()[-1] == "No NaN this time: the outputs differ from those of the incident."


def test_inf_is_not_taken_for_nan(tmp_path: Path) -> None:
    code, _ = run_here(write_repro(tmp_path, aten.log.default, (torch.zeros(2),), {}, "nan"))
    assert code == 1


def test_the_kind_is_that_of_the_outputs_at_birth(tmp_path: Path) -> None:
    spec, tensors = encode_call((torch.zeros(2),), {}, is_tensor)
    save_file(tensors, tmp_path / "tensors.safetensors")
    output = Numbers((2,), "float32", "cpu", 2, neginf=2)
    birth = Birth("aten.log.default", None, None, None, outputs=(output,))
    incident = Incident(0, 0, "nan", "forward", birth, "raised")
    path = tmp_path / "repro.py"
    path.write_text(repro_source("aten.log.default", spec, incident))
    assert run_here(path)[0] == 0


def test_a_random_op_with_its_generator_state_draws_the_same(tmp_path: Path) -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    x = torch.full((4, 4), 6e4).half()
    expected = aten.native_dropout.default(x, 0.5, True)[1]
    torch.manual_seed(99)
    path = write_repro(tmp_path, aten.native_dropout.default, (x, 0.5, True), {}, "inf", {"cpu": state})
    scope = runpy.run_path(str(path), run_name="repro")
    _, outputs = scope["attempt"](aten.native_dropout.default)
    assert torch.equal(outputs[1][1], expected)
    assert run_here(path)[0] == 0


def test_a_random_op_without_its_state_is_drawn_until_it_shows(tmp_path: Path) -> None:
    x = torch.tensor([6e4, 1, 1, 1, 1, 1]).half()
    args = (x, 0.98, True)
    path = write_repro(tmp_path, aten.native_dropout.default, args, {}, "inf")
    assert run_here(path)[0] == 0


def test_a_generator_is_dropped(tmp_path: Path) -> None:
    kwargs = {"generator": torch.Generator()}
    path = write_repro(tmp_path, aten.normal.Tensor_float, (torch.full((3,), INF), 1.0), kwargs, "inf")
    assert "generator=None" in path.read_text()
    assert run_here(path)[0] == 0


def test_a_device_that_is_not_here_becomes_the_cpu(tmp_path: Path) -> None:
    spec, tensors = encode_call((torch.zeros(2),), {"device": torch.device("cuda:7")}, is_tensor, ["self"])
    spec["tensors"]["self"]["device"] = "cuda:7"
    save_file(tensors, tmp_path / "tensors.safetensors")
    spec["kwargs"] = {"dtype": encode_scalar(torch.float16), "device": spec["kwargs"]["device"]}
    spec["args"] = [{"tensor": "self"}, {"float": "inf"}]
    path = tmp_path / "repro.py"
    path.write_text(repro_source("aten.full_like.default", spec, incident_of("inf")))
    code, printed = run_here(path)
    assert code == 0
    assert "cuda:7 not on this machine, the CPU is used:" in printed


def test_an_op_this_torch_does_not_have_is_said_in_a_sentence(tmp_path: Path) -> None:
    spec, _ = encode_call((torch.zeros(2),), {}, is_tensor)
    path = tmp_path / "repro.py"
    path.write_text(repro_source("mylib.blur.default", spec, incident_of("nan")))
    code, printed = run_here(path)
    assert (code, printed) == (
        1,
        "torch.ops has no mylib.blur.default here: "
        "import the library that registers it at the top of this file.\n",
    )


def test_an_op_that_raises_is_said_and_exits_with_1(tmp_path: Path) -> None:
    path = write_repro(tmp_path, aten.mm.default, (torch.ones(2, 3), torch.ones(2, 3)), {}, "nan")
    code, printed = run_here(path)
    assert code == 1
    assert "The op cannot be run here: " in printed and "Traceback" not in printed


@pytest.mark.parametrize(
    "op", ["aten.log'); import os; ('", "aten", "torch.ops.aten.log.default", "aten.log "]
)
def test_what_is_no_op_is_refused(op: str) -> None:
    spec, _ = encode_call((), {}, is_tensor)
    with pytest.raises(ValueError, match=r"expected namespace\.name\.overload"):
        repro_source(op, spec, incident_of("nan"))


def test_text_of_the_user_cannot_become_code(tmp_path: Path) -> None:
    spec, tensors = encode_call((torch.zeros(2),), {}, is_tensor, ["se'lf\n"])
    save_file(tensors, tmp_path / "tensors.safetensors")
    birth = Birth(
        "aten.log.default", "a\nraise SystemExit(7)", "x.py\nraise SystemExit(8)", 1, code="'''\n@CALL@"
    )
    incident = Incident(0, 0, "inf", "forward", birth, "raised")
    path = tmp_path / "repro.py"
    path.write_text(repro_source("aten.log.default", spec, incident), encoding="utf-8")
    assert run_here(path)[0] == 0


def test_chinese_repro_runs_on_a_terminal_that_cannot_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    monkeypatch.setenv("NANWATCH_LANG", "zh")
    path = write_repro(tmp_path, aten.log.default, (torch.zeros(2),), {}, "inf")
    assert "再次出现同类的值：Inf。" in path.read_text(encoding="utf-8")
    environ = {"PYTHONIOENCODING": "cp1252", "PATH": ""}
    done = subprocess.run([sys.executable, path], capture_output=True, env=environ)
    assert done.returncode == 0, done.stderr


def rebuilt(tmp_path: Path, tensor: torch.Tensor) -> torch.Tensor:
    path = write_repro(tmp_path, aten.neg.default, (tensor,), {}, "nan")
    return runpy.run_path(str(path), run_name="repro")["operand"]("self")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4).t(),
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.randn(6, 6)[::2, 1::2],
        torch.randn(1, 4, 1).expand(5, 4, 3),
        torch.tensor(2.0),
        torch.zeros(0, 3),
        torch.randn(3, dtype=torch.complex128),
        torch.randn(3, 2, dtype=torch.complex64).t().conj(),
        torch.tensor([True, False]),
        torch.arange(3).to(torch.uint16),
        torch.randn(4).bfloat16(),
    ],
)
def test_an_operand_comes_back_bit_for_bit_with_its_strides(tensor: torch.Tensor, tmp_path: Path) -> None:
    again = rebuilt(tmp_path, tensor)
    assert torch.equal(again, tensor) and again.dtype == tensor.dtype
    assert again.stride() == tensor.stride() or tensor.stride()[0] % 2 == 0


def test_an_expanded_operand_is_stored_once() -> None:
    _, tensors = encode_call((torch.zeros(1, 1).expand(1000, 1000),), {}, is_tensor)
    assert tensors["arg0"].shape == (1, 1)


def test_operands_are_copies(tmp_path: Path) -> None:
    x = torch.ones(3)
    spec, tensors = encode_call((x, x[1:], x), {}, is_tensor, ["self", "other", "third"])
    x.zero_()
    assert spec["args"] == [{"tensor": "self"}, {"tensor": "other"}, {"tensor": "self"}]
    assert tensors["self"].tolist() == [1, 1, 1] and tensors["other"].tolist() == [1, 1]
    save_file(tensors, tmp_path / "t.safetensors")


def test_parameters_that_require_grad_are_taken() -> None:
    _, tensors = encode_call((torch.nn.Parameter(torch.ones(2)) * 2,), {}, is_tensor)
    assert not tensors["arg0"].requires_grad


def test_what_cannot_be_written_down_is_opaque() -> None:
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)
    spec, tensors = encode_call((object(), quantized, torch.empty(2, device="meta")), {}, is_tensor)
    assert tensors == {}
    assert spec["args"] == [
        {"opaque": "object"},
        {"opaque": "strided tensor [2] quint8 on cpu"},
        {"opaque": "strided tensor [2] float32 on meta"},
    ]


def test_operand_bytes_counts_a_tensor_once() -> None:
    x = torch.ones(10)
    assert operand_bytes((x, [x, torch.ones(5, dtype=torch.float16)]), {"out": x}, is_tensor) == 50


class Catch(TorchDispatchMode):
    """What the core does: encode before the op, keep it when the op gives a non-finite value."""

    caught: list[tuple[Any, Any, Any]]

    def __init__(self) -> None:
        super().__init__()
        self.caught = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        names = [a.name for a in func._schema.arguments]
        spec, tensors = encode_call(args, kwargs, is_tensor, names)
        out = func(*args, **kwargs)
        if is_tensor(out) and out.is_floating_point() and not out.isfinite().all():
            self.caught.append((func, spec, tensors))
        return out


def test_calls_caught_by_a_dispatch_mode(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    with Catch() as mode:
        loss = (net(torch.randn(2, 3)).mean() * 0).sqrt()
        loss.backward()
    assert mode.caught
    for number, (func, spec, tensors) in enumerate(mode.caught[:3]):
        folder = tmp_path / str(number)
        folder.mkdir()
        save_file(tensors, folder / "tensors.safetensors")
        with torch.no_grad():
            out = func(*[tensors[a["tensor"]] if isinstance(a, dict) else a for a in spec["args"]])
        kind = "nan" if out.isnan().any() else "inf"
        (folder / "repro.py").write_text(repro_source(str(func), spec, incident_of(kind)), encoding="utf-8")
        assert run_here(folder / "repro.py")[0] == 0


class Hollow(torch.Tensor):
    """A wrapper subclass without memory, of which every copy is one too."""

    @staticmethod
    def __new__(cls, inside: torch.Tensor) -> torch.Tensor:
        made = torch.Tensor._make_wrapper_subclass(cls, inside.shape, dtype=inside.dtype)
        made.inside = inside
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls(func(*(a.inside if isinstance(a, cls) else a for a in args), **(kwargs or {})))


def test_a_wrapper_without_memory_is_not_handed_to_safetensors(tmp_path: Path) -> None:
    spec, tensors = encode_call((Hollow(torch.ones(3)), torch.ones(3)), {}, is_tensor, ["self", "other"])
    assert spec["args"] == [{"opaque": "strided tensor [3] float32 on cpu"}, {"tensor": "other"}]
    assert list(tensors) == ["other"]
