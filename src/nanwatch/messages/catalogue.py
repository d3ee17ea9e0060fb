"""Every sentence: id -> (English, Chinese). The part before the dot is the room or screen that says it.

The sentences are in `sentences/`, one file per subject. Both languages hold the same placeholders (a test
checks), names of ops, options and files are never translated, and a sentence says where, what value, what was
expected and what to do next.
"""

from __future__ import annotations

from nanwatch.messages.sentences import (
    arguments,
    checkpoint_gate,
    command_line,
    demo,
    early_warning,
    report,
    run_folder,
    screen,
    snapshots,
    stabilise,
    stable_blocks,
    stable_config,
    watching,
)

SUBJECTS = (
    arguments,
    command_line,
    watching,
    early_warning,
    screen,
    report,
    run_folder,
    checkpoint_gate,
    snapshots,
    stabilise,
    stable_config,
    demo,
    stable_blocks,
)
CATALOGUE: dict[str, tuple[str, str]] = {
    message: sentence for subject in SUBJECTS for message, sentence in subject.SENTENCES.items()
}
