"""A value in memory that nobody wrote: what is known of it, put into records. Nothing has to be run again."""

from __future__ import annotations

from dataclasses import replace

from nanwatch.messages import say
from nanwatch.replay.located import Located, birth_at
from nanwatch.tensors import numbers
from nanwatch.watching.fingerprints import Changed
from nanwatch.watching.trouble import Trouble


def located_in_memory(trouble: Trouble, changed: Changed) -> Located:
    parameter = changed.name.rpartition(" of ")[2]
    birth = birth_at((), None, parameter.rpartition(".")[0])
    birth = replace(birth, outputs=(numbers(changed.tensor.detach(), changed.name),))
    return Located(trouble.step, "bit", "weights", birth, "recorded facts", notes=[_said(changed)])


def _said(changed: Changed) -> str:
    one = changed.one
    assert one is not None
    return say(
        "watch.bit_turned",
        name=changed.name,
        place=list(one.place),
        bit=one.bit,
        before=f"{one.before:.6g}",
        value=f"{one.value:.6g}",
        step=changed.step,
    )
