"""What the program itself looks at with `isnan` and the like, or gives to a function that passes over NaN: it
knows what it does about it."""

from __future__ import annotations

from nanwatch.watching.tape import Entry, Tape, given_to

QUESTIONS = ("isnan", "isinf", "isfinite")
PASSING_OVER = ("nanmean", "nansum", "nanmedian", "nanquantile", "nan_to_num", "nan_to_num_")


def asked_about(entries: list[Entry]) -> set[int]:
    """By identity, since the last update."""
    return {id(t) for e in entries if getattr(e.call, "__name__", "") in QUESTIONS for t in given_to(e)}


def is_asked_about(call: Entry, tape: Tape) -> bool:
    """Whether the program has since looked at what this call returned, or at what it made of it."""
    made = {id(tensor) for tensor, _ in call.made}
    for entry in tape.entries[tape.entries.index(call) + 1 :] if call in tape.entries else ():
        if any(id(t) in made for t in given_to(entry)):
            if getattr(entry.call, "__name__", "") in (*QUESTIONS, *PASSING_OVER):
                return True
            made.update(id(tensor) for tensor, _ in entry.made)
    return False
