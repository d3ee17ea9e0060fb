"""One file per experiment. An experiment file has

NAME            as in incident.json
TITLE           what is being done, for the progress line, in both languages
applies(case)   whether it can tell anything about this step
run(case)       a case.Outcome; leaves no trace in the program
"""

from __future__ import annotations

import importlib
from types import ModuleType

FILES = (
    "autocast_off",
    "float32",
    "operand_bounded",
    "larger_eps",
    "in_domain",
    "fill_values",
    "discarded",
    "repeat",
    "rows_dropped",
    "row_twice",
    "another_batch",
    "poisoned_memory",
    "eager",
    "on_cpu",
    "synchronous_copies",
    "one_worker",
    "in_turn",
    "kept_as_saved",
    "unscaled",
    "bfloat16",
    "lower_rate",
    "clipping",
    "adamw",
    "usual_settings",
    "poisoned_update",
    "fresh_statistics",
    "fresh_optimizer_state",
    "valid_indices",
    "last_good_weights",
)

EXPERIMENTS: dict[str, ModuleType] = {}
for _file in FILES:
    _module = importlib.import_module(f"nanwatch.explain.experiments.{_file}")
    EXPERIMENTS[_module.NAME] = _module
