"""Which calls of the program's own code work on what a model has computed."""

from __future__ import annotations

from collections.abc import Iterable

from nanwatch.watching.tape import Entry, tensors_in
from nanwatch.watching.torch_functions import changes_its_input, written_to


def given_what_models_made(entries: Iterable[Entry]) -> set[int]:
    """The ids of those that were given the output of a model, or what came of it."""
    made_of_it: set[int] = set()
    found: set[int] = set()
    for entry in entries:
        reads = entry.kind != "backward" and any(
            id(t) in made_of_it for t in tensors_in((entry.args, entry.kwargs))
        )
        if reads:
            found.add(id(entry))
        if reads or entry.kind == "module":
            made_of_it.update(id(t) for t, _ in entry.made)
        if reads and (entry.kind == "write" or changes_its_input(entry.call, entry.kwargs)):
            made_of_it.update(id(t) for t in tensors_in(written_to(entry.args, entry.kwargs)))
    return found
