"""Ways to find a NaN in a script that knows nothing of them: nanwatch and its peers, one file each.

A file has

    LABEL                     what the table calls it
    IMPORTS                   what it imports, which takes time that is not to be counted
    applies(script)           whether it can serve this script at all
    watching(script, folder)  a context in which the script runs; `folder` is for what the tool writes
    read_off(output, folder)  what a person can read off what was printed and written: a `Said`

`python -m bench.peers NAME main.py` runs one of them by hand.
"""

from __future__ import annotations

from bench.peers import (
    debug_mode,
    detect_anomaly,
    lightning_guard,
    module_hooks,
    nanwatch_run,
    python_alone,
    trainer_guard,
    underflow_overflow,
)

TOOLS = {
    "nanwatch": nanwatch_run,
    "detect_anomaly": detect_anomaly,
    "underflow_overflow": underflow_overflow,
    "module_hooks": module_hooks,
    "lightning_guard": lightning_guard,
    "trainer_guard": trainer_guard,
    "debug_mode": debug_mode,
    "python_alone": python_alone,
}
