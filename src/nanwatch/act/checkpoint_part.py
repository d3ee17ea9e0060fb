"""One rank's tensors as a checkpoint of torch.distributed.checkpoint, written and read without other ranks.

`save` and `async_save` of that package talk to the other ranks over the process group of the training: from
a thread beside it, their messages would come between those of the training. So its planner and its writer are
called here one after the other, as `save` does for a single process. `dcp.load` and torch's converters can
read the result. Here it is read by offsets of our own: `.metadata` is a pickle, and no pickle is ever loaded.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nanwatch.act.checkpoint_gate import unchecked

Place = list[Any]
"""A tensor's name, its file, and offset and length in it."""


def write_tensors(folder: Path, tensors: dict[str, Tensor]) -> list[Place]:
    """Writes and syncs the files, and returns where each tensor lies."""
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
    from torch.distributed.checkpoint.filesystem import FileSystemWriter

    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    writer = FileSystemWriter(folder, sync_files=True, per_thread_copy_ahead=0)
    planner.set_up_planner(dict(tensors), writer.storage_meta(), True)
    writer.set_up_storage_writer(True)
    plans, metadata = planner.create_global_plan([writer.prepare_local_plan(planner.create_local_plan())])
    (plan,) = writer.prepare_global_plan(plans)
    with unchecked():  # it was judged already, with the names of what is bad
        writing = writer.write_data(planner.finish_plan(plan), planner)
        writing.wait()
    results = writing.value()
    writer.finish(metadata, [results])
    lie = [(result.index.fqn, result.storage_data) for result in results]
    return [[name, at.relative_path, at.offset, at.length] for name, at in lie]


def read_tensors(folder: Path, places: list[Place]) -> dict[str, Tensor]:
    tensors = {}
    files: dict[str, Any] = {}
    try:
        for name, file, offset, length in places:
            if file not in files:
                files[file] = (folder / Path(file).name).open("rb")
            files[file].seek(offset)
            memory = io.BytesIO(files[file].read(length))
            tensors[name] = torch.load(memory, map_location="cpu", weights_only=True)
    finally:
        for opened in files.values():
            opened.close()
    return tensors
