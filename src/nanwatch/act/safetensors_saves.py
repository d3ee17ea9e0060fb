"""The gate on safetensors: `save_file`, `save_model`, and whoever has imported them by name.

`save_file` first makes a list of its tensors, then writes it: the gate remembers the one and stands before
the other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import safetensors.torch as module

from nanwatch.act.gated_write import write_gated
from nanwatch.act.judging import Judge
from nanwatch.act.kept_aside import say_written_anyway, to_read
from nanwatch.messages import say

Wrap = Callable[[Any, str, Callable[[Any], Any]], None]


def gate_safetensors(wrap: Wrap, judge: Judge) -> None:
    thread = threading.local()

    def make_flatten(original: Any) -> Any:
        def flatten(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            flat = original(tensors, *args, **kwargs)
            thread.listed = (flat, tensors)
            return flat

        return flatten

    def tensors_of(flat: Any) -> Any:
        listed, tensors = getattr(thread, "listed", (None, None))
        thread.listed = (None, None)
        return tensors if listed is flat else None

    def bad_in(flat: Any, metadata: Any) -> Any:
        model = getattr(thread, "model", False) or (
            isinstance(metadata, dict) and metadata.get("format") == "pt"
        )
        return judge.bad_in(tensors_of(flat), is_state=model)

    def make_serialize_file(original: Any) -> Any:
        def serialize_file(flat: Any, filename: Any, metadata: Any = None) -> Any:
            bad = bad_in(flat, metadata)

            def write(path: str) -> Any:
                return original(flat, path, metadata=metadata)

            return write_gated(judge, os.fsdecode(filename), bad, write)

        return serialize_file

    def make_serialize(original: Any) -> Any:
        def serialize(flat: Any, metadata: Any = None) -> Any:
            bad = bad_in(flat, metadata)
            if bad:
                say_written_anyway(bad, say("gate.stream"), say("gate.no_file"))
            with judge.telling():
                return original(flat, metadata=metadata)

        return serialize

    def make_save_model(original: Any) -> Any:
        def save_model(*args: Any, **kwargs: Any) -> Any:
            thread.model = True
            try:
                return original(*args, **kwargs)
            finally:
                thread.model = False

        return save_model

    def make_safe_open(original: Any) -> Any:
        def safe_open(filename: Any, *args: Any, **kwargs: Any) -> Any:
            return original(to_read(filename), *args, **kwargs)

        return safe_open

    wrap(module, "safe_open", make_safe_open)
    for name in ("_flatten", "_flatten_as_ptr"):
        wrap(module, name, make_flatten)
    wrap(module, "serialize_file", make_serialize_file)
    wrap(module, "serialize", make_serialize)
    wrap(module, "save_model", make_save_model)
