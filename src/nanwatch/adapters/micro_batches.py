"""Of several micro-batches only the bad ones are left out, where that can be done; and what is said of it."""

from __future__ import annotations

from nanwatch.explain.alone import Alone
from nanwatch.messages import say
from nanwatch.replay.good_parts import good_parts
from nanwatch.replay.parts_of_ranks import good_parts_of_ranks
from nanwatch.watching.sentinel import gradients_of
from nanwatch.watching.trouble import Trouble
from nanwatch.watching.watcher import Watcher


def keep(trouble: Trouble, decided: str, watcher: Watcher) -> None:
    if trouble.parts and decided == "skip":
        try:
            trouble.good_parts = good_parts(trouble.tape, trouble.earlier, watcher.calls)
        except Exception:
            trouble.good_parts = None  # then all of them are


def keep_together(trouble: Trouble, watcher: Watcher) -> None:
    """Every rank must come here."""
    what = (watcher.recorder.tape, tuple(watcher.recorder.finished), watcher.calls)
    optimizer, after_scaler = trouble.optimizer, not watcher.now.updating
    changed = watcher.recorder.has_changed(gradients_of(optimizer))
    can = watcher.scaling.lets_parts_in(optimizer) and not changed
    trouble.good_parts = good_parts_of_ranks(*what, watcher.lockstep, optimizer, Alone, can, after_scaler)


def said_of(trouble: Trouble, decided: str, watcher: Watcher) -> list[str]:
    several = trouble.tape.backwards > 1 and not watcher.now.closure
    if decided != "skip" or not several or trouble.seen_in not in ("loss", "gradients"):
        return []
    good = trouble.good_parts
    if good is None:
        return [say("watch.group_left_out")]
    if not good.bad:
        return [say("watch.parts_of_others_left_out")]
    bad = ", ".join(str(part) for part in good.bad)
    if watcher.lockstep.groups:
        return [say("watch.good_parts_kept_by_ranks", bad=bad, count=good.count)]
    return [say("watch.good_parts_kept", bad=bad, count=good.count)]
