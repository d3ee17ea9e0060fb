"""What a model returned in an earlier step, and the program has carried into this one: the state of a
recurrent network, the last prediction. The weights were updated since; mostly the same op makes it again."""

from __future__ import annotations

import torch

from nanwatch.replay.again import run_again
from nanwatch.replay.blame import first_harmful
from nanwatch.replay.trace import Op
from nanwatch.watching.module_calls import ModuleCalls
from nanwatch.watching.storages import key_of
from nanwatch.watching.tape import Entry, Tape
from nanwatch.watching.trouble import Trouble


def call_that_made(memory: int, trouble: Trouble) -> Entry | None:
    """The last call of a model, in the steps on record before this one, that returned it."""
    return next((entry for _, _, entry in _calls(memory, trouble)), None)


def made_by_an_earlier_call(memory: int, trouble: Trouble, calls: ModuleCalls) -> Op | None:
    """The op that first made something bad there, if the same call makes something bad there again."""
    for tape, earlier, call in _calls(memory, trouble):
        again = run_again(tape, earlier, calls)
        made = again.counterparts(_returned(call, memory))
        writers = [again.tracer.writers.get(tensor) for tensor in made]
        blame = first_harmful(again.tracer.trace, [index for index in writers if index is not None])
        return None if blame is None or blame.outside is not None else blame.op
    return None


def _calls(memory: int, trouble: Trouble) -> list[tuple[Tape, tuple[Tape, ...], Entry]]:
    return [
        (tape, trouble.earlier[:place], entry)
        for place, tape in reversed(list(enumerate(trouble.earlier)))
        for entry in reversed(tape.entries)
        if entry.kind == "module" and _returned(entry, memory)
    ]


def _returned(call: Entry, memory: int) -> list[torch.Tensor]:
    return [tensor for tensor, _ in call.made if key_of(tensor) == memory]
