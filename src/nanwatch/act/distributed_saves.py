"""The gate on torch.distributed.checkpoint: `save`, `async_save` and the older `save_state_dict`.

All ranks of the process group write one folder, so they take one decision, before any of them writes. A bad
checkpoint goes as a whole to a folder beside the one that was asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from nanwatch.act.agreement import Agreement
from nanwatch.act.judging import Judge
from nanwatch.act.kept_aside import folder_aside, say_kept_aside, say_written_anyway
from nanwatch.messages import say

Wrap = Callable[[Any, str, Callable[[Any], Any]], None]


def gate_distributed_saves(wrap: Wrap, judge: Judge, agreement: Agreement, saver: ModuleType) -> None:
    """`saver` is torch.distributed.checkpoint.state_dict_saver. A save in a thread comes through here too."""

    def aside_for(state: Any, path: Any, group: Any, alone: bool) -> str | None:
        """Where the folder goes instead; None if it may have its name."""
        bad = judge.look(state, is_state=True)
        text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
        if text is None or "://" in text:
            if bad:
                say_written_anyway(bad, text or say("gate.stream"), say("gate.no_file"))
            return None
        number = agreement.on_checkpoint(None if bad is None else bool(bad), text, group, alone)
        if not number:
            if bad:
                say_written_anyway(bad, text, say("gate.no_agreement"))
            return None
        aside = folder_aside(text, number)
        if bad:
            say_kept_aside(bad, text, aside)
        return aside

    def make_save(original: Any) -> Any:
        def _save_state_dict(
            state_dict: Any, storage_writer: Any, process_group: Any = None, *args: Any, **kwargs: Any
        ) -> Any:
            path = getattr(storage_writer, "path", None)
            aside = None
            if not judge.resting:
                no_dist = kwargs.get("no_dist", args[1] if len(args) > 1 else False)
                aside = judge.guarded(lambda: aside_for(state_dict, path, process_group, bool(no_dist)), None)
            if aside is not None:
                storage_writer.reset(aside)
            try:
                with judge.rest():
                    return original(state_dict, storage_writer, process_group, *args, **kwargs)
            finally:
                if aside is not None:
                    storage_writer.reset(path)

        return _save_state_dict

    def make_in_a_process(original: Any) -> Any:
        def execute_save(executor: Any, staged: Any, *, checkpoint_id: Any = None, **kwargs: Any) -> Any:
            """The process that writes has no gate: judged here, while the ranks are still in step."""
            writer = kwargs.get("storage_writer")
            if not judge.resting:
                path = checkpoint_id if checkpoint_id is not None else getattr(writer, "path", None)
                state = staged.result() if isinstance(staged, Future) else staged
                group, alone = kwargs.get("process_group"), bool(kwargs.get("no_dist", False))
                aside = judge.guarded(lambda: aside_for(state, path, group, alone), None)
                checkpoint_id = checkpoint_id if aside is None else aside
            with judge.telling():
                return original(executor, staged, checkpoint_id=checkpoint_id, **kwargs)

        return execute_save

    wrap(saver, "_save_state_dict", make_save)
    executor = getattr(saver, "_ProcessBasedAsyncCheckpointExecutor", None)
    if executor is not None:
        wrap(executor, "execute_save", make_in_a_process)
