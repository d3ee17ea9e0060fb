"""The gate on what frameworks save as a whole: Lightning's checkpoint files, and the folders of transformers
and accelerate.

A folder is judged before its first file is written: three good shards and one old one are no checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch import nn

from nanwatch.act.agreement import Agreement
from nanwatch.act.judging import Judge
from nanwatch.act.kept_aside import file_aside, folder_aside, free_number, say_kept_aside, say_written_anyway
from nanwatch.act.saved_state import is_sharded
from nanwatch.messages import say
from nanwatch.watching.shield import warn

Wrap = Callable[[Any, str, Callable[[Any], Any]], None]


class Frameworks:
    """One method for each module of a framework, called when that module is there."""

    def __init__(self, wrap: Wrap, judge: Judge, agreement: Agreement) -> None:
        self._wrap = wrap
        self._judge = judge
        self._agreement = agreement
        self._last_was_bad = False
        """Lightning deletes an old checkpoint when a new one was written: not for a bad one."""

    def modules(self) -> dict[str, Callable[[ModuleType], None]]:
        found: dict[str, Callable[[ModuleType], None]] = {
            "accelerate.accelerator": self.accelerate,
            "transformers.modeling_utils": self.transformers_models,
            "transformers.trainer": self.transformers_trainer,
        }
        for fabric, trainer in (
            ("lightning.fabric", "lightning.pytorch"),
            ("lightning_fabric", "pytorch_lightning"),
        ):
            found[f"{fabric}.plugins.io.torch_io"] = self.lightning_files
            found[f"{trainer}.callbacks.model_checkpoint"] = self.lightning_links
        return found

    # Lightning

    def lightning_files(self, module: ModuleType) -> None:
        """It saves into memory first and then writes a file: the path must be another before that."""
        judge = self._judge

        def make_save(original: Any) -> Any:
            def save_checkpoint(io: Any, checkpoint: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
                bad = judge.bad_in(checkpoint)
                where = judge.guarded(lambda: _free_file(module, os.fspath(path)), path) if bad else path
                self._last_was_bad = bool(bad)
                with judge.rest():
                    result = original(io, checkpoint, where, *args, **kwargs)
                    if bad:
                        say_kept_aside(bad, path, where)
                return result

            return save_checkpoint

        def make_remove(original: Any) -> Any:
            def remove_checkpoint(io: Any, path: Any) -> Any:
                if not self._last_was_bad:
                    return original(io, path)
                if judge.guarded(lambda: module.get_filesystem(path).exists(path), True):
                    warn(say("gate.not_deleted", path=path))
                return None

            return remove_checkpoint

        self._wrap(module.TorchCheckpointIO, "save_checkpoint", make_save)
        self._wrap(module.TorchCheckpointIO, "remove_checkpoint", make_remove)

    def lightning_links(self, module: ModuleType) -> None:
        """`last.ckpt` must not become a link to a file that was kept aside."""

        def make_link(original: Any) -> Any:
            plain = original.__func__

            def _link_checkpoint(trainer: Any, filepath: Any, linkpath: Any) -> Any:
                if self._last_was_bad and trainer.is_global_zero:
                    filepath = (
                        linkpath  # the one case in which it changes nothing, and still meets the others
                    )
                return plain(trainer, filepath, linkpath)

            return staticmethod(_link_checkpoint)

        self._wrap(module.ModelCheckpoint, "_link_checkpoint", make_link)

    # transformers

    def transformers_models(self, module: ModuleType) -> None:
        def make_save(original: Any) -> Any:
            def save_pretrained(model: Any, save_directory: Any, *args: Any, **kwargs: Any) -> Any:
                state = kwargs.get("state_dict", args[1] if len(args) > 1 else None)
                if self._leave_to_the_files(model, state):
                    return original(model, save_directory, *args, **kwargs)
                folder = self._alone(model if state is None else state, save_directory)
                with self._judge.rest():
                    return original(model, folder, *args, **kwargs)

            return save_pretrained

        self._wrap(module.PreTrainedModel, "save_pretrained", make_save)

    def transformers_trainer(self, module: ModuleType) -> None:
        """A checkpoint's folder is named inside, after a prefix that the module holds."""
        names: Any = module
        prefix = names.PREFIX_CHECKPOINT_DIR

        def prefix_for(trainer: Any, trial: Any) -> str:
            step = f"-{trainer.state.global_step}"
            folder = os.path.join(trainer._get_output_dir(trial=trial), prefix + step)
            state = {"model": trainer.model_wrapped, "optimizer": trainer.optimizer}
            return os.path.basename(self._together(state, folder)).removesuffix(step)

        def make_save(original: Any) -> Any:
            def _save_checkpoint(trainer: Any, model: Any, trial: Any, *args: Any, **kwargs: Any) -> Any:
                if self._judge.resting:
                    return original(trainer, model, trial, *args, **kwargs)
                names.PREFIX_CHECKPOINT_DIR = self._judge.guarded(lambda: prefix_for(trainer, trial), prefix)
                try:
                    with self._judge.rest():
                        return original(trainer, model, trial, *args, **kwargs)
                finally:
                    names.PREFIX_CHECKPOINT_DIR = prefix

            return _save_checkpoint

        self._wrap(names.Trainer, "_save_checkpoint", make_save)

    # accelerate

    def accelerate(self, module: ModuleType) -> None:
        self._wrap(module.Accelerator, "save_model", self._make_accelerate_save_model)
        self._wrap(module.Accelerator, "save_state", self._make_accelerate_save_state)

    def _make_accelerate_save_model(self, original: Any) -> Any:
        def save_model(accelerator: Any, model: Any, save_directory: Any, *args: Any, **kwargs: Any) -> Any:
            if self._leave_to_the_files(model, None):
                return original(accelerator, model, save_directory, *args, **kwargs)
            folder = self._alone(model, save_directory)
            with self._judge.rest():
                return original(accelerator, model, folder, *args, **kwargs)

        return save_model

    def _make_accelerate_save_state(self, original: Any) -> Any:
        def folder_for(accelerator: Any, asked: Any) -> str | None:
            """Another folder than the one that was asked for, or None."""
            meant = asked
            if accelerator.project_configuration.automatic_checkpoint_naming:
                # not among the numbered folders: the oldest of those is deleted, the newest is loaded
                name = f"checkpoint_{accelerator.save_iteration}"
                asked = os.path.join(accelerator.project_dir, name)
                meant = os.path.join(accelerator.project_dir, "checkpoints", name)
            optimizers = [getattr(o, "optimizer", o) for o in accelerator._optimizers]
            state = {"model": accelerator._models, "optimizer": optimizers}
            folder = self._together(state, os.fspath(asked), os.fspath(meant))
            return folder if folder != os.fspath(asked) else None

        def save_state(accelerator: Any, output_dir: Any = None, *args: Any, **kwargs: Any) -> Any:
            if self._judge.resting:
                return original(accelerator, output_dir, *args, **kwargs)
            project = accelerator.project_configuration
            named = project.automatic_checkpoint_naming
            aside = self._judge.guarded(lambda: folder_for(accelerator, output_dir), None)
            if aside is not None:
                output_dir, project.automatic_checkpoint_naming = aside, False
            try:
                with self._judge.rest():
                    return original(accelerator, output_dir, *args, **kwargs)
            finally:
                project.automatic_checkpoint_naming = named

        return save_state

    # A folder

    def _leave_to_the_files(self, model: Any, state: Any) -> bool:
        """Where this process holds only a part, the files are judged, when the parts have been gathered."""
        if self._judge.resting:
            return True
        known = isinstance(model, nn.Module) and state is None
        return self._judge.guarded(lambda: known and is_sharded(model), True)

    def _alone(self, state: Any, folder: Any) -> Any:
        """The folder for a checkpoint that one process writes."""
        bad = self._judge.bad_in(state, is_state=True)
        if not bad:
            return folder
        aside = folder_aside(os.fspath(folder), free_number(os.fspath(folder)))
        say_kept_aside(bad, folder, aside)
        return aside

    def _together(self, state: Any, folder: str, meant: str | None = None) -> str:
        """The folder for a checkpoint to which every rank adds its files. `meant`: where it would be, if that
        is not beside the one that is kept aside."""
        bad = self._judge.look(state, is_state=True)
        number = self._agreement.on_folder(None if bad is None else bool(bad), folder)
        if not number:
            if bad:
                say_written_anyway(bad, meant or folder, say("gate.no_agreement"))
            return folder
        aside = folder_aside(folder, number)
        if bad:
            say_kept_aside(bad, meant or folder, aside)
        return aside


def _free_file(module: ModuleType, path: str) -> str:
    """A free name beside `path`, on whatever file system Lightning writes to."""
    return file_aside(path, module.get_filesystem(path).exists)
