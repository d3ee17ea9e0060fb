"""The step with damaged values put back. Of a weight in which one bit looks turned over, what it was is
known; in the place of values that are not finite stand some of the usual size."""

from __future__ import annotations

import torch

from nanwatch.explain.bits import flipped_bit
from nanwatch.explain.case import Case, Outcome, runs_finite
from nanwatch.explain.history import usual_values
from nanwatch.explain.instead import with_values
from nanwatch.explain.state import Held, bad_weights, of_modules
from nanwatch.explain.text import Text

NAME = "last-good-weights"
TITLE = Text("running the step with the damaged value put back", "把损坏的值恢复后重新运行这一步")
FINITE = Text(
    "with {before} in the place of {value} the step runs finite",
    "把 {value} 换回 {before} 后，这一步结果有限",
)
STILL = Text(
    "with {before} in the place of {value} the step still fails",
    "把 {value} 换回 {before} 后，这一步仍然失败",
)


USUAL = Text(
    "with usual values in the place of the bad ones of {name} the step runs finite",
    "把 {name} 中的坏值换成正常大小的值后，这一步结果有限",
)
USUAL_STILL = Text(
    "with usual values in the place of the bad ones of {name} the step still fails",
    "把 {name} 中的坏值换成正常大小的值后，这一步仍然失败",
)


def applies(case: Case) -> bool:
    return (
        bool(case.model_calls)
        and case.phase not in ("optimizer", "data")
        and bool(_mended(case) or bad_weights(case))
    )


def run(case: Case) -> Outcome:
    bad = bad_weights(case)
    if bad:
        values = [(each, usual_values(each.tensor.detach())) for each in bad]
        finite = runs_finite(with_values(case, values))
        return Outcome(
            finite, "" if finite is None else (USUAL if finite else USUAL_STILL).say(name=bad[0].name)
        )
    mended = _mended(case)
    finite = runs_finite(with_values(case, [(each, value) for each, value, _ in mended]))
    if finite is None:
        return Outcome(None, "")
    value, before = mended[0][2]
    said = (FINITE if finite else STILL).say(value=f"{value:.4g}", before=f"{before:.4g}")
    return Outcome(finite, said)


def _mended(case: Case) -> list[tuple[Held, torch.Tensor, tuple[float, float]]]:
    found = []
    for each in of_modules(case.models):
        one = flipped_bit(each.tensor)
        if one is not None:
            value = each.tensor.detach().clone()
            value[one.place] = one.before
            found.append((each, value, (one.value, one.before)))
    return found
