"""Drawing from probabilities that may be unsound, with an error that says which rows and why.

torch.multinomial only says that some tensor was bad, and on CUDA ends the process with a device assert. Here
the rows are looked at first, which costs one read by the host per call.
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from nanwatch.messages import say
from nanwatch.stable.arguments import require_floating, require_number
from nanwatch.stable.limits import largest_of, scale_of, widened


class UnsoundProbabilitiesError(ValueError):
    """Rows that nothing can be drawn from. `rows` holds their numbers, with all leading dimensions as one."""

    def __init__(self, message: str, rows: list[int]) -> None:
        super().__init__(message)
        self.rows = rows


def sample(
    probabilities: Tensor | None = None,
    *,
    logits: Tensor | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    repair: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """One category per row of (..., categories), given as `logits` or as `probabilities` of any sum.

    temperature 0 takes the largest. top_k keeps the k largest, top_p the fewest that hold this share, one at
    least. Without these it gives what torch.multinomial gives with the same generator.

    A row with NaN, Inf or negative values, or with nothing above zero, raises UnsoundProbabilitiesError.
    With repair=True it gets its largest usable category, or any where none is usable, and a RuntimeWarning
    says so.
    """
    name, given = _given(probabilities, logits)
    _require_settings(temperature, top_k, top_p)
    rows = widened(given.detach()).reshape(-1, given.shape[-1])
    usable = _usable(rows, is_logits=logits is not None)
    bad = _unsound(rows, usable, is_logits=logits is not None)
    if rows.shape[0] and bool(bad.any()):
        _report(name, rows, usable, bad, repair)
        rows, usable = _repaired(rows, usable, bad, is_logits=logits is not None)
    if temperature == 0:
        return rows.masked_fill(~usable, -math.inf).argmax(-1).reshape(given.shape[:-1])
    weights = _weights(rows, usable, temperature, is_logits=logits is not None)
    weights = _filtered(weights, top_k, top_p)
    drawn = (
        torch.multinomial(weights, 1, generator=generator)
        if rows.shape[0]
        else weights.new_empty(0, 1).long()
    )
    return drawn.reshape(given.shape[:-1])


def _given(probabilities: Tensor | None, logits: Tensor | None) -> tuple[str, Tensor]:
    if (probabilities is None) == (logits is None):
        raise ValueError(say("stable.one_of_two", found=0 if logits is None else 2))
    name, given = ("logits", logits) if logits is not None else ("probabilities", probabilities)
    assert given is not None
    require_floating("sample", **{name: given})
    if given.dim() == 0 or given.shape[-1] == 0:
        raise ValueError(say("stable.no_categories", name=name, found=tuple(given.shape)))
    return name, given


def _require_settings(temperature: float, top_k: int | None, top_p: float | None) -> None:
    require_number("sample", "temperature", temperature, least=0.0, example=0.7)
    if top_k is not None:
        require_number("sample", "top_k", top_k, least=1, example=50)
    if top_p is not None:
        require_number("sample", "top_p", top_p, above=0.0, most=1.0, example=0.95)


def _usable(rows: Tensor, is_logits: bool) -> Tensor:
    """Categories that may be drawn: a finite logit, a finite probability above 0."""
    return rows.isfinite() if is_logits else (rows > 0) & rows.isfinite()


def _unsound(rows: Tensor, usable: Tensor, is_logits: bool) -> Tensor:
    excluded = rows == (-math.inf if is_logits else 0)
    return ~usable.any(-1) | ~(usable | excluded).all(-1)


def _report(name: str, rows: Tensor, usable: Tensor, bad: Tensor, repair: bool) -> None:
    numbers = bad.nonzero().flatten().tolist()
    row, probabilities = rows[numbers[0]], name == "probabilities"
    counts = say(
        "stable.counts",
        nan=int(row.isnan().sum()),
        inf=int((row.isinf() if probabilities else row == math.inf).sum()),
        negative=int((row < 0).sum()) if probabilities else 0,
        usable=int(usable[numbers[0]].sum()),
        size=row.numel(),
    )
    message = "stable.repaired_rows" if repair else "stable.unsound_rows"
    text = say(message, name=name, bad=len(numbers), rows=len(rows), row=numbers[0], counts=counts)
    if not repair:
        raise UnsoundProbabilitiesError(text, numbers)
    warnings.warn(text, RuntimeWarning, stacklevel=3)


def _repaired(rows: Tensor, usable: Tensor, bad: Tensor, is_logits: bool) -> tuple[Tensor, Tensor]:
    """Bad rows as rows of one category, the largest usable, or, where none is, of all alike."""
    bad = bad.unsqueeze(-1)
    hopeless = ~usable.any(-1, keepdim=True)
    largest = rows.masked_fill(~usable, -math.inf).argmax(-1, keepdim=True)
    chosen = torch.zeros_like(usable).scatter(-1, largest, True) | hopeless
    usable = torch.where(bad, chosen, usable)
    flat = torch.where(chosen, 0.0 if is_logits else 1.0, -math.inf if is_logits else 0.0)
    return torch.where(bad, flat, rows), usable


def _weights(rows: Tensor, usable: Tensor, temperature: float, is_logits: bool) -> Tensor:
    if not is_logits:
        if temperature == 1:
            return rows / scale_of(largest_of(rows, (-1,)))
        rows = rows.masked_fill(~usable, 1.0).log().masked_fill(~usable, -math.inf)
    if temperature == 1:
        return torch.softmax(rows, -1)
    # The largest becomes 0 before the division, so that no temperature, however low, can overflow.
    return torch.softmax((rows - rows.amax(-1, keepdim=True)) / temperature, -1)


def _filtered(weights: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    if top_k is None and top_p is None:
        return weights
    ordered, places = weights.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ordered = ordered.masked_fill(torch.arange(ordered.shape[-1], device=ordered.device) >= top_k, 0.0)
    if top_p is not None:
        before = ordered.cumsum(-1) - ordered
        ordered = ordered.masked_fill(before >= top_p * ordered.sum(-1, keepdim=True), 0.0)
    return torch.zeros_like(weights).scatter(-1, places, ordered)
