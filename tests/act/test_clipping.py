"""Clipping: torch's own bits when all is finite; nothing changed, and the guilty named, when not."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nursery import Nursery
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import nanwatch
from nanwatch.act import clipping
from nanwatch.errors import NanwatchError

NAN, INF = float("nan"), float("inf")
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64]
NORMS = [2.0, 1.0, 3.5, INF, 0.0, -INF, -1.0]
shapes = st.lists(st.lists(st.integers(0, 4), max_size=3), max_size=5)
bad_values = st.sampled_from([NAN, INF, -INF])


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANWATCH_LANG", "en")
    clipping._said.clear()


def parameters(sizes: list[list[int]], dtypes: list[torch.dtype], seed: int) -> list[nn.Parameter]:
    """With gradients, every fourth without."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for index, size in enumerate(sizes):
        dtype = dtypes[index % len(dtypes)]
        p = nn.Parameter(torch.zeros(size, dtype=dtype))
        if index % 4 != 3:
            p.grad = (10 * torch.randn(size, generator=generator, dtype=torch.float64)).to(dtype)
        made.append(p)
    return made


def bits(tensors: list[nn.Parameter]) -> list[bytes | None]:
    return [None if p.grad is None else bits_of(p.grad) for p in tensors]


def bits_of(t: Tensor) -> bytes:
    return t.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """The bits of what it returns, or its error."""
    try:
        norm = function(*args)
    except RuntimeError as error:
        return type(error), str(error)
    return bits_of(norm.reshape(1)), norm.dtype, norm.shape


@given(
    shapes,
    st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3),
    st.sampled_from(NORMS),
    st.sampled_from([None, True, False]),
    st.sampled_from([0.0, 0.1, 5.0, 1e9]),
    st.integers(0, 2**31),
)
@settings(max_examples=150, deadline=None)
def test_finite_gradients_are_clipped_bit_for_bit_as_torch_does(
    sizes: list[list[int]],
    dtypes: list[torch.dtype],
    norm_type: float,
    foreach: bool | None,
    max_norm: float,
    seed: int,
) -> None:
    ours, theirs = (parameters(sizes, dtypes, seed) for _ in range(2))
    expected = outcome(torch.nn.utils.clip_grad_norm_, theirs, max_norm, norm_type, False, foreach)
    grads = [p.grad for p in ours if p.grad is not None]
    if not isinstance(expected[0], type) and not math.isfinite(
        torch.nn.utils.get_total_norm(grads, norm_type, False, foreach)
    ):
        return  # 1/0 in a negative norm, or an overflow: not "all finite"
    assert outcome(nanwatch.clip_grad_norm_, ours, max_norm, norm_type, False, foreach) == expected
    assert bits(ours) == bits(theirs)


@pytest.mark.parametrize("size", [1e160, 1e200, 1e308])
def test_a_norm_that_no_dtype_can_hold(size: float) -> None:
    made = [nn.Parameter(torch.zeros(n, dtype=torch.float64)) for n in (3, 1)]
    for p in made:
        p.grad = torch.full_like(p, size)
    norm = nanwatch.clip_grad_norm_(made, 6.0)
    assert norm.finite and norm.isinf(), "the gradients are finite, their norm is not"
    assert torch.allclose(
        torch.cat([p.grad for p in made if p.grad is not None]), torch.full((4,), 3.0).double()
    )


def test_who_is_watched_hears_of_the_step_at_its_update(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = nn.Linear(3, 1)
    before = model.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nanwatch.watch(policy="skip", dir=tmp_path, explain=False):
        for x in (torch.full((2, 3), torch.nan), torch.ones(2, 3)):  # the first micro-batch is left out
            model(x).sum().backward()
        nanwatch.clip_grad_norm_(model, 1.0)
        optimizer.step()
    said = capfd.readouterr().err
    assert "Nothing was clipped" in said and "Leave this step out" not in said
    assert torch.allclose(model.weight, before - 0.05), "made with the good one, clipped"


@given(shapes, st.sampled_from(DTYPES[:4]), st.sampled_from([None, True, False]), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_values_are_clipped_bit_for_bit_as_torch_does(
    sizes: list[list[int]], dtype: torch.dtype, foreach: bool | None, seed: int
) -> None:
    ours, theirs = (parameters(sizes, [dtype], seed) for _ in range(2))
    if all(p.grad is None for p in theirs):
        return  # torch has no answer to this
    torch.nn.utils.clip_grad_value_(theirs, 2.5, foreach)
    done = nanwatch.clip_grad_value_(ours, 2.5, foreach)
    assert done.finite and done.guilty == () and bits(ours) == bits(theirs)


@given(
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=2), min_size=1, max_size=5),
    st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3),
    st.sampled_from(NORMS),
    st.dictionaries(st.integers(0, 4), bad_values, min_size=1),
    st.integers(0, 2**31),
)
@settings(max_examples=150, deadline=None)
def test_a_bad_gradient_changes_nothing_and_is_named(
    sizes: list[list[int]],
    dtypes: list[torch.dtype],
    norm_type: float,
    bad: dict[int, float],
    seed: int,
) -> None:
    made = parameters(sizes, dtypes, seed)
    spoiled = set()
    for index, value in bad.items():
        if index < len(made) and (grad := made[index].grad) is not None:
            grad.view(-1)[0] = value
            spoiled.add(index)
    before = bits(made)
    named = [(f"layer{index}", p) for index, p in enumerate(made)]
    norm = nanwatch.clip_grad_norm_(named, 1.0, norm_type)
    if not spoiled:
        return
    assert bits(made) == before
    assert not norm.finite and not math.isfinite(norm)  # type: ignore[attr-defined]
    guilty: Any = norm.guilty  # type: ignore[attr-defined]
    assert [n.name for n in guilty] == [f"layer{index}" for index in sorted(spoiled)]
    assert all(n.nan + n.posinf + n.neginf == 1 for n in guilty)
    if not any(p.is_complex() for p in made):
        done = nanwatch.clip_grad_value_(named, 1.0)
        assert not done.finite and done.guilty == guilty and bits(made) == before
    with pytest.raises(RuntimeError, match=r"layer\d .* of \d"):
        nanwatch.clip_grad_norm_(named, 1.0, norm_type, error_if_nonfinite=True)


class Ops(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_no_gradient_is_read_twice_when_all_is_finite() -> None:
    ours, theirs = (parameters([[3, 2], [4], [2]], [torch.float32], 0) for _ in range(2))
    with Ops() as torchs:
        torch.nn.utils.clip_grad_norm_(theirs, 1.0, error_if_nonfinite=True)
    with Ops() as mine:
        nanwatch.clip_grad_norm_(ours, 1.0)
    assert mine.seen == torchs.seen and "aten._foreach_norm.Scalar" in mine.seen


def model_with_gradients(scale: float = 1.0) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    (model(torch.randn(5, 3)).sum() * scale).backward()
    return model


def test_the_result_is_the_tensor_of_torch_and_more() -> None:
    norm: Any = nanwatch.clip_grad_norm_(model_with_gradients().parameters(), 1e9)
    assert type(norm) is Tensor and norm > 0 and float(norm) == norm.item()
    assert norm.finite and norm.guilty == ()
    for empty in ([], (p for p in ())):
        assert nanwatch.clip_grad_norm_(empty, 1.0) == 0  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="empty generator"):
        nanwatch.clip_grad_norm_((p for p in ()), 1.0)


def test_names_come_from_wherever_they_are_known(capfd: pytest.CaptureFixture[str]) -> None:
    model = model_with_gradients()
    assert model[1].weight.grad is not None  # type: ignore[index]
    model[1].weight.grad[0, 2] = -INF  # type: ignore[index]
    optimizer = torch.optim.SGD(list(model.named_parameters()), 0.1)

    def names(*args: Any, **kwargs: Any) -> list[str]:
        return [n.name for n in nanwatch.clip_grad_norm_(*args, **kwargs).guilty]  # type: ignore[attr-defined]

    assert names(model, 1.0) == ["1.weight"]
    assert names(model.named_parameters(), 1.0) == ["1.weight"]
    assert names(model.parameters(), 1.0, optimizer=optimizer) == ["1.weight"]
    said = capfd.readouterr().err
    assert said.count("1.weight (0 NaN, 0 +Inf, 1 -Inf of 4)") == 1, "the same again is not repeated"
    assert names(model.parameters(), 1.0) == ["parameters[2]"]
    assert names(model[1].weight, 1.0) == ["parameters[0]"]  # type: ignore[index]


def test_finite_gradients_whose_norm_leaves_their_dtype_are_clipped_all_the_same() -> None:
    p = nn.Parameter(torch.zeros(100, dtype=torch.float16))
    p.grad = torch.full_like(p, 60000.0)
    assert math.isinf(torch.nn.utils.get_total_norm([p.grad]))
    norm: Any = nanwatch.clip_grad_norm_(p, 1.0, error_if_nonfinite=True)
    assert norm.finite and float(norm) == pytest.approx(599808, rel=1e-3)
    assert torch.allclose(p.grad, torch.full_like(p, 0.1), rtol=1e-2)


def test_replacing_is_loud_each_time(capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        model = model_with_gradients()
        twin = model_with_gradients()
        model[0].bias.grad[1] = NAN  # type: ignore[index]
        twin[0].bias.grad[1] = 0.0  # type: ignore[index]
        norm: Any = nanwatch.clip_grad_norm_(model, 0.5, replace_nonfinite_by_zero=True)
        assert norm.finite and [n.name for n in norm.guilty] == ["0.bias"]
        assert torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.5) == norm
        assert bits(list(model.parameters())) == bits(list(twin.parameters()))
    model[0].bias.grad[1] = INF  # type: ignore[index]
    done = nanwatch.clip_grad_value_(model, 0.5, replace_nonfinite_by_zero=True)
    assert done.finite and model[0].bias.grad[1] == 0  # type: ignore[index]
    assert capfd.readouterr().err.count("FOR DEBUGGING ONLY") == 3


def test_sparse_gradients_where_torch_allows_them() -> None:
    def embedded(bad: bool) -> nn.Module:
        torch.manual_seed(0)
        model = nn.Embedding(10, 3, sparse=True)
        model(torch.tensor([1, 4, 7])).sum().mul(NAN if bad else 3.0).backward()
        model.weight.grad = model.weight.grad.coalesce()
        return model

    def dense(model: nn.Module) -> Tensor:
        return model.weight.grad.to_dense()  # type: ignore[union-attr, operator]

    for foreach in (None, False):
        ours, theirs = embedded(False), embedded(False)
        expected = outcome(torch.nn.utils.clip_grad_norm_, theirs.parameters(), 1.0, 2.0, False, foreach)
        assert outcome(nanwatch.clip_grad_norm_, ours.parameters(), 1.0, 2.0, False, foreach) == expected
        assert torch.equal(dense(ours), dense(theirs))


def scaled(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    loss = model(torch.randn(5, 3)).sum() * (INF if bad else 1.0)
    scaler.scale(loss).backward()
    return model, optimizer, scaler


@pytest.mark.parametrize("already", [False, True])
def test_scaled_gradients_are_unscaled_once(already: bool) -> None:
    plain, plain_optimizer, plain_scaler = scaled()
    plain_scaler.unscale_(plain_optimizer)
    expected = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
    model, optimizer, scaler = scaled()
    if already:
        scaler.unscale_(optimizer)
        assert nanwatch.clip_grad_norm_(model, 1e9, scaler=scaler) == expected  # no need to say whose
    norm = nanwatch.clip_grad_norm_(model, 0.5, scaler=scaler, optimizer=optimizer)
    assert norm == expected and bits(list(model.parameters())) == bits(list(plain.parameters()))
    scaler.step(optimizer)
    scaler.update()
    plain_optimizer.step()
    assert torch.equal(model[0].weight, plain[0].weight)  # type: ignore[index]


def test_the_scaler_still_skips_a_bad_step_and_nothing_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    model, optimizer, scaler = scaled(bad=True)
    before = [p.detach().clone() for p in model.parameters()]
    norm: Any = nanwatch.clip_grad_norm_(model, 0.5, scaler=scaler, optimizer=optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert not norm.finite and norm.guilty and scaler.get_scale() == 512.0
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("limit", [NAN, -1.0, "1"])
def test_a_limit_that_would_spoil_the_gradients(limit: Any) -> None:
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    before = model.weight.grad.clone()  # type: ignore[union-attr]
    for clip, name in ((nanwatch.clip_grad_norm_, "max_norm"), (nanwatch.clip_grad_value_, "clip_value")):
        with pytest.raises(NanwatchError, match=f"{name} is {limit!r}; a number of at least 0 was expected"):
            clip(model, limit)
    assert torch.equal(before, model.weight.grad)  # type: ignore[arg-type]


def test_a_scaler_needs_to_know_the_optimizer() -> None:
    model, _, scaler = scaled()
    before = bits(list(model.parameters()))
    with pytest.raises(NanwatchError, match="scaler=scaler, optimizer=optimizer"):
        nanwatch.clip_grad_norm_(model, 0.5, scaler=scaler)
    assert bits(list(model.parameters())) == before
    nanwatch.clip_grad_norm_(model, 0.5, scaler=torch.amp.GradScaler("cpu", enabled=False))


def test_the_optimizer_of_accelerate_is_known_to_the_scaler() -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    model, optimizer, scaler = scaled()
    wrapped = Accelerator(cpu=True).prepare(optimizer)
    scaler.unscale_(wrapped.optimizer)
    expected = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    assert nanwatch.clip_grad_norm_(model, 0.5, scaler=scaler, optimizer=wrapped) == expected
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("policy", ["skip", "observe"])
def test_a_watched_program_may_use_it(policy: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found = []
    with nanwatch.watch(model, optimizer, policy=policy, dir=str(tmp_path / "run")) as session:
        for step in range(3):
            optimizer.zero_grad()
            (model(torch.randn(4, 3)) * (step != 1)).square().sum().sqrt().backward()
            found.append(nanwatch.clip_grad_norm_(model, 1.0).finite)  # type: ignore[attr-defined]
            optimizer.step()
    assert found[:2] == [True, False]
    first = session.incidents[0]
    assert (first.step, first.phase, first.seen_in) == (1, "backward", "gradients")


SHARDED = """
import os, torch, nanwatch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + os.environ["MEETING"], rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))

def parameter():
    p = torch.nn.Parameter(distribute_tensor(torch.zeros(4, 2), mesh, [Shard(0)]))
    p.grad = distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh, [Shard(0)])
    return p

ours, theirs = parameter(), parameter()
norm, expected = nanwatch.clip_grad_norm_([ours], 1.0), torch.nn.utils.clip_grad_norm_([theirs], 1.0)
assert norm.finite and torch.equal(norm.full_tensor(), expected.full_tensor())
assert torch.equal(ours.grad.to_local(), theirs.grad.to_local())

bad = parameter()
if rank == 1:
    bad.grad.to_local()[0, 0] = float("nan")
before = bad.grad.to_local().clone()
norm = nanwatch.clip_grad_norm_([("w", bad)], 1.0)
assert not norm.finite and [n.name for n in norm.guilty] == (["w"] if rank == 1 else [])
assert torch.equal(bad.grad.to_local().nan_to_num(), before.nan_to_num())
assert not nanwatch.clip_grad_norm_([bad], 1.0, norm_type="inf").finite
assert not nanwatch.clip_grad_value_([bad], 1.0).finite
assert torch.equal(bad.grad.to_local().nan_to_num(), before.nan_to_num())
dist.destroy_process_group()
"""


def test_ranks_that_share_a_sharded_gradient_agree(tmp_path: Path, nursery: Nursery) -> None:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(SHARDED), encoding="utf-8")
    ranks = nursery.run_ranks([str(script)], tmp_path, tmp_path / "meeting")
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(rank.stderr for rank in ranks)


@pytest.mark.gpu
def test_several_devices() -> None:
    def made() -> list[nn.Parameter]:
        both = parameters([[3, 2], [4]], [torch.float32], 0)
        on_gpu = nn.Parameter(both[1].detach().cuda())
        on_gpu.grad = both[1].grad.cuda()  # type: ignore[union-attr]
        return [both[0], on_gpu]

    ours, theirs = made(), made()
    norm: Any = nanwatch.clip_grad_norm_(ours, 1.0)
    assert norm == torch.nn.utils.clip_grad_norm_(theirs, 1.0) and norm.finite
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))  # type: ignore[arg-type]
    ours[1].grad[0] = NAN  # type: ignore[index]
    before = ours[0].grad.clone()  # type: ignore[union-attr]
    assert not nanwatch.clip_grad_norm_(ours, 1.0).finite  # type: ignore[attr-defined]
    assert torch.equal(ours[0].grad, before)  # type: ignore[arg-type]
