"""bad-input: the batch itself holds NaN or Inf, or values that no preprocessing should leave."""

from __future__ import annotations

import torch

from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.experiments.synchronous_copies import copies_into
from nanwatch.explain.remedies import offer
from nanwatch.explain.samples import Odd, about_rows, bad_values, batch_of, guilty_rows, odd_values
from nanwatch.explain.state import allocation_of, born_at, line_of, short, writes_to
from nanwatch.explain.text import Text
from nanwatch.records import Remedy
from nanwatch.replay.trace import Op
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, tensors_in, version_of
from nanwatch.watching.torch_functions import changes_its_input

PAGE = Page(
    Text("Bad input", "输入数据有问题"),
    Text(
        "The batch that the model was given already holds NaN or Inf, or a value that is out of all "
        "proportion to the rest: a missing measurement, the fill value of a file format, bytes read with "
        "the wrong dtype, a sample that was never normalised. The model is innocent: any model would fail "
        "on this batch.",
        "交给模型的批次本身就含有 NaN 或 Inf，或者含有与其余数据完全不成比例的值：缺失的测量、文件格式的填充"
        "值、用错误的 dtype 读出的字节、从未归一化的样本。模型没有问题：任何模型遇到这个批次都会失败。",
    ),
    Text(
        "The value is in the batch before the model reads it, and no op of torch computed it. The "
        "same step without those rows, or with an earlier batch, runs finite.",
        "在模型读取之前，这个值就已经在批次里，而且不是任何 torch 运算算出来的。去掉这些行，或换成先前的"
        "批次，同一步的结果就是有限的。",
    ),
    Text(
        "Drop or repair the rows named here, check the data set once, and let the loader "
        "refuse what is not finite. Replace fill values (1e20, 9.97e36, -9999) by a mask before any "
        "statistics are taken.",
        "删除或修复这里指出的行，把数据集整体检查一遍，让加载器拒绝非有限值。"
        "在计算任何统计量之前，先把填充值（1e20、9.97e36、-9999）换成掩码。",
    ),
    (
        "data_numpy_nan",
        "data_torch_load_inf",
        "data_dataloader_fork_workers",
        "data_raw_camera_frames",
        "loss_ocean_temperatures",
    ),
)
HELD = Text(
    "The batch already held {kind} when the model read it; no op of torch in this process computed "
    "it{where}{shared}.",
    "模型读取时批次里已经有 {kind}，它不是本进程中任何 torch 运算算出来的{where}{shared}。",
)
SHARED = Text(
    "; it lies in memory that processes share, as the workers of a DataLoader hand over theirs, and what "
    "other processes compute is not seen",
    "；它位于进程间共享的内存中（DataLoader 的 worker 就是这样交付数据的），其他进程里的运算不在监视之内",
)
WHERE = Text(" (it came in at {line})", "（它在 {line} 处进入程序）")
PREPARED = Text(
    "What the model was given was made bad while the data was prepared, at {line}.",
    "交给模型的数据在准备阶段（{line}）就已经变坏。",
)
OFF_SCALE = Text(
    "{what} holds {value} at {place}; nothing else in that batch is larger than {others}.",
    "{what} 在 {place} 处的值为 {value}；该批次中其余的值都不超过 {others}。",
)
OVERWRITTEN = Text(
    "What the model was given is not finite now, but the model writes into it while it runs: it may have "
    "been good before.",
    "模型得到的输入现在含有非有限值，但模型在运行时会改写它：之前可能是好的。",
)
KEPT_UP = Text(
    "The bad values are in memory that the program keeps from step to step and writes into at {line}; what "
    "is on record of these writes was finite: an earlier one brought them in, and what made them is unknown.",
    "坏值位于程序跨步保留、并在 {line} 处写入的内存中；有记录的写入都是有限的，因此坏值来自更早的一次写入，"
    "其产生之处未知。",
)
KEPT = Text(
    "The step read {kind} from a tensor that the program had kept{where}: data, or something that it "
    "computed in an earlier step; what made it is not on record.",
    "这一步从程序早已保存的张量中读到了 {kind}{where}：它可能是数据，也可能是更早的一步算出的结果；没有记录"
    "说明它是怎么产生的。",
)
READ = Text(" (at {line})", "（位于 {line}）")
CLEAN_RUNS = Text("a clean batch runs finite", "干净的批次结果有限")
PUTS = (
    "fill_",
    "fill",
    "copy_",
    "copy",
    "index_put_",
    "index_put",
    "lift_fresh",
    "full",
    "full_like",
    "new_full",
    "masked_fill",
    "masked_fill_",
    "scalar_tensor",
    "set_",
)
"""Ops that put a value somewhere and compute none."""

SETS = ("__setitem__", "fill_", "copy_", "set_", "full", "tensor", "as_tensor")
"""Functions of torch that do the same."""

FAR_OFF = 1e6


def weigh(case: Case) -> Claim | Against | None:
    if case.trouble.seen_in == "hyperparameter" or case.phase in ("weights", "optimizer"):
        return None
    if case.phase == "data":
        op = case.located.op
        return _held_it(case) if op is None or _only_put(op) else _prepared(case)
    return _off_scale(case)


def _only_put(op: Op) -> bool:
    """Whether the op wrote down a value that was given to it, and computed nothing."""
    parts = op.name.split(".")
    return len(parts) > 1 and parts[1] in PUTS


def _held_it(case: Case) -> Claim | None:
    bad = [t for _, t in batch_of(case) if measurable(t) and not is_finite(t)]
    if not bad or any(allocation_of(case, t) is not None for t in bad):
        return None  # not in the batch, or nobody wrote it
    if any(_written_by_the_model(case, t) for t in bad):
        return Claim("possible", OVERWRITTEN.say(), tuple(about_rows(case, guilty_rows(case))), 3.0)
    if case.located.op is None and any(_computed(case, t) for t in bad):
        return _prepared(case)
    kept_up = next(filter(None, (_last_good_write(case, t) for t in bad)), None)
    if case.located.op is None and kept_up is not None:
        return Claim("possible", KEPT_UP.say(line=line_of(kept_up.stack)), (), 3.0)
    kind = "NaN" if case.kind == "nan" else "Inf"
    line = born_at(case)
    if case.located.kept_since_before:
        return Claim("possible", KEPT.say(kind=kind, where=READ.say(line=line) if line else ""), (), 3.0)
    shared = SHARED.say() if any(t.is_cpu and t.is_shared() for t in bad) else ""
    why = HELD.say(kind=kind, where=WHERE.say(line=line) if line else "", shared=shared)
    evidence = [*bad_values(case), *about_rows(case, guilty_rows(case))]
    clean = _clean_batch_runs(case)
    if clean:
        evidence.append(CLEAN_RUNS.say())
    if any(copies_into(case, t) for t in bad):
        return Claim("possible", why, tuple(evidence), 3.0)  # it may have been good before it was copied
    return Claim("likely" if clean is False else "proved", why, tuple(evidence), 3.0)


def _written_by_the_model(case: Case, tensor: torch.Tensor) -> bool:
    """Whether the model changed what it was given while it ran, and what was there before was not kept."""
    return any(
        each is tensor and version_of(each) != version and (id(each), version) not in case.tape.saved
        for entry in case.model_calls
        for each, version in entry.versions
    )


def _computed(case: Case, tensor: torch.Tensor) -> bool:
    """Whether a call on record made it of finite values, or NaN of infinities."""
    entry = next(writes_to(case, key_of(tensor)), None)
    if entry is None or getattr(entry.call, "__name__", "") in SETS:
        return False
    every = tensors_in((entry.args, entry.kwargs))
    given = [t for t in every if key_of(t) != key_of(tensor) and measurable(t)]
    if not given:
        return False
    made_nan = bool(torch.isnan(tensor).any()) and not any(bool(torch.isnan(t).any()) for t in given)
    return made_nan or all(is_finite(t) for t in given)


def _last_good_write(case: Case, tensor: torch.Tensor) -> Entry | None:
    """The last change in place on record of memory that no loader or file has filled, if it wrote nothing
    bad."""
    arrivals = case.trouble.arrivals
    entry = next(writes_to(case, key_of(tensor)), None)
    if entry is None or (arrivals is not None and arrivals.get(tensor) is not None):
        return None
    if entry.kind != "write" and not changes_its_input(entry.call, entry.kwargs):
        return None
    given = [t for t in tensors_in((entry.args, entry.kwargs)) if key_of(t) != key_of(tensor)]
    written = [t for t in given if measurable(t) and t.is_floating_point()]
    return entry if written and all(map(is_finite, written)) else None


def _clean_batch_runs(case: Case) -> bool | None:
    """None when it could not be tried."""
    without = case.outcome("rows-dropped").finite
    return True if without else (case.outcome("another-batch").finite if without is None else without)


def _prepared(case: Case) -> Claim:
    """An op of the preparation made it: that op's own cause says more."""
    evidence = about_rows(case, guilty_rows(case))
    return Claim("possible", PREPARED.say(line=born_at(case)), tuple(evidence), 3.0)


def _off_scale(case: Case) -> Claim | None:
    """A finite value that overflows a model which is fine on everything else."""
    rows = case.located.birth.samples
    odd = next((o for o in odd_values(case) if not rows or o.place[0] in rows), None)
    if odd is None:
        return None
    dropped = case.outcome("rows-dropped").finite
    if dropped is False:
        return None
    other = case.outcome("another-batch").finite
    far = odd.times >= FAR_OFF and bool(dropped)
    certainty = "proved" if far and other is not False else ("likely" if far else "possible")
    return Claim(certainty, _sentence(odd), tuple(about_rows(case, (odd.place[0],))), 3.0)


def _sentence(odd: Odd) -> str:
    return OFF_SCALE.say(
        what=odd.what, place=list(odd.place), value=short(odd.value), others=short(odd.others)
    )


def remedies(case: Case) -> list[Remedy]:
    return offer(case, "clean-data", "check-range", "drop-bad-rows", "skip-batch")
