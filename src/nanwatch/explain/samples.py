"""Which rows of the batch are guilty: proved by running the step without them, and with them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from nanwatch.explain.text import Text
from nanwatch.replay.again import Changes
from nanwatch.replay.samples import bad_rows_of_batch, batch_size
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite
from nanwatch.watching.tape import tensors_in

if TYPE_CHECKING:
    from nanwatch.explain.case import Case

ROWS = Text("guilty: row {rows} of {count} of the batch", "有问题的是批次中第 {rows} 行（共 {count} 行）")
PLACE = Text("{what} holds {value} at {place}", "{what} 在 {place} 处的值为 {value}")
IN_DATA_SET = Text("in the data set: index {index}", "在数据集中的索引：{index}")
TOKENS = Text("the ids of that row: {ids}", "该行的 id：{ids}")
MOST_SHOWN = 8
OFF_SCALE = 1e4
"""A value this many times the largest of the other rows is no ordinary one."""


@dataclass(frozen=True)
class Odd:
    """A value of the batch that no preprocessing should leave."""

    what: str
    place: tuple[int, ...]
    value: float
    others: float
    """The largest size among the other rows."""

    @property
    def times(self) -> float:
        return abs(self.value) / max(self.others, 1e-30)


def batch_of(case: Case) -> list[tuple[str, torch.Tensor]]:
    """The tensors the step was given that are neither weights nor results of a model, named by their first
    use. Of those that were made on the tape, only what a model or the loss read."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    read_later = False
    for entry in case.tape.entries:
        if entry.kind == "module":
            read_later = True
            name = type(entry.call).__name__
            for i, tensor in enumerate(tensors_in((entry.args, entry.kwargs))):
                if not tensor.requires_grad:
                    found.setdefault(id(tensor), (f"input {i} of {name}", tensor))
        elif read_later and entry.kind in ("op", "apply"):
            made = {id(t) for e in case.tape.entries if e.kind == "module" for t in tensors_in(e.outputs)}
            for tensor in tensors_in((entry.args, entry.kwargs)):
                if not tensor.requires_grad and id(tensor) not in made:
                    found.setdefault(id(tensor), (f"what {entry.call.__name__} was given", tensor))
    held = {id(t) for m in case.models for t in (*m.parameters(), *m.buffers())}
    return [item for key, item in found.items() if key not in held and item[1].device.type != "meta"]


def guilty_rows(case: Case) -> tuple[int, ...]:
    """As far as they can be seen: those of the birth, or those that are bad or far off in the batch."""
    size = batch_size(case.tape)
    rows = case.located.birth.samples or bad_rows_of_batch(case.tape) or _bad_rows_of_any(case, size)
    if not rows:
        rows = tuple(dict.fromkeys(odd.place[0] for odd in odd_values(case) if odd.place))
    return tuple(sorted(r for r in rows if size is not None and 0 <= r < size))


def _bad_rows_of_any(case: Case, size: int | None) -> tuple[int, ...]:
    for _, tensor in batch_of(case):
        if _by_rows(tensor, size) and not is_finite(tensor):
            rows = (~torch.isfinite(tensor.detach())).reshape(len(tensor), -1).any(1)
            return tuple(int(i) for i in rows.nonzero().reshape(-1).tolist())
    return ()


def _by_rows(tensor: torch.Tensor, size: int | None) -> bool:
    return (
        measurable(tensor) and tensor.dim() > 0 and tensor.layout is torch.strided and tensor.shape[0] == size
    )


def without(rows: tuple[int, ...], size: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Leaves these rows out of every tensor that has a row per sample."""
    kept = torch.tensor([i for i in range(size) if i not in set(rows)])
    return lambda tensor: _chosen(tensor, kept, size)


def _chosen(tensor: torch.Tensor, rows: torch.Tensor, size: int) -> torch.Tensor:
    if tensor.dim() == 0 or tensor.shape[0] != size or tensor.layout is not torch.strided:
        return tensor
    return tensor.detach()[rows.to(tensor.device)]


def fails_with(case: Case, rows: tuple[int, ...], size: int) -> bool | None:
    """Whether these rows alone fail too; None when that could not be run."""
    from nanwatch.explain.case import runs_finite

    others = tuple(i for i in range(size) if i not in set(rows))
    finite = runs_finite(case.rerun(Changes(outside=without(others, size))))
    return None if finite is None else not finite


def odd_values(case: Case) -> list[Odd]:
    """Finite values of the batch that are out of all proportion to the other rows, the oddest first."""
    size = batch_size(case.tape)
    found = []
    for name, tensor in batch_of(case):
        if not _by_rows(tensor, size) or tensor.is_complex() or len(tensor) < 2 or not tensor.numel():
            continue
        sizes = torch.nan_to_num(tensor.detach().double().abs().reshape(len(tensor), -1), 0.0, 0.0, 0.0)
        peaks = sizes.amax(1)
        row = int(peaks.argmax())
        rest = float(torch.cat([peaks[:row], peaks[row + 1 :]]).max())
        if rest > 0 and float(peaks[row]) > OFF_SCALE * rest:
            at = int(sizes[row].argmax())
            place = (row, *_unravel(at, tensor.shape[1:]))
            found.append(Odd(name, place, float(tensor.detach()[place]), rest))
    return sorted(found, key=lambda odd: -odd.times)


def _unravel(index: int, shape: torch.Size) -> Iterator[int]:
    places = []
    for length in reversed(shape):
        places.append(index % length)
        index //= length
    return reversed(places)


def bad_values(case: Case) -> list[str]:
    """Where the batch holds NaN or Inf, in words."""
    said = []
    for name, tensor in batch_of(case):
        if not measurable(tensor) or tensor.layout is not torch.strided or is_finite(tensor):
            continue
        for place in (~torch.isfinite(tensor.detach())).nonzero()[:2].tolist():
            said.append(
                PLACE.say(what=name, place=list(place), value=str(tensor.detach()[tuple(place)].item()))
            )
    return said[:MOST_SHOWN]


def about_rows(case: Case, rows: tuple[int, ...]) -> list[str]:
    """Sentences for the evidence: the rows, their ids, their place in the data set."""
    size = batch_size(case.tape)
    if not rows or size is None:
        return []
    said = [ROWS.say(rows=_listed(rows), count=size)]
    for _, tensor in batch_of(case):
        if (
            not measurable(tensor)
            and tensor.dim() == 2
            and tensor.shape[0] == size
            and tensor.dtype == torch.long
        ):
            said.append(TOKENS.say(ids=tensor[rows[0]][:MOST_SHOWN].tolist()))
            break
    index = _in_data_set(case, rows, size)
    if index:
        said.append(IN_DATA_SET.say(index=_listed(index)))
    return said


def _listed(rows: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, rows[:MOST_SHOWN]))
    return shown if len(rows) <= MOST_SHOWN else f"{shown}, …"


def _in_data_set(case: Case, rows: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Where a loader goes through its data set in order: what it has given out so far tells. Only known when
    one loader is at work and its sampler keeps the order."""
    import gc

    from torch.utils.data import SequentialSampler, dataloader

    iterators: list[Any] = [
        o for o in gc.get_objects() if issubclass(type(o), dataloader._BaseDataLoaderIter)
    ]
    if len(iterators) != 1 or not isinstance(
        getattr(iterators[0]._index_sampler, "sampler", None), SequentialSampler
    ):
        return ()
    per_batch = iterators[0]._index_sampler.batch_size
    begin = (iterators[0]._num_yielded - 1) * per_batch
    return tuple(begin + r for r in rows) if begin >= 0 and size <= per_batch else ()
