"""A file is there as a whole or not at all: written beside, synced, renamed.

A program that is killed while it saves over its only checkpoint keeps the old one.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path


class WholeFile:
    """A file that is written under another name until `put`. Making one fails where files cannot be made."""

    def __init__(self, target: str) -> None:
        self.target = target
        stem, suffix = os.path.splitext(self.target)
        self.part = f"{stem}{suffix or '.'}-nanwatch-part-{os.urandom(4).hex()}"
        """torch writes the name up to the last dot into the file: it must be that of the target."""
        os.close(os.open(self.part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))

    def put(self) -> None:
        """Give the file the target's name, and its mode and owner as far as that is allowed."""
        if os.path.exists(self.target):
            old, new = os.stat(self.target), os.stat(self.part)
            if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                _try(lambda: os.chown(self.part, old.st_uid, old.st_gid))
            _try(lambda: os.chmod(self.part, stat.S_IMODE(old.st_mode)))
        self.put_as(self.target)

    def put_as(self, name: str) -> None:
        _sync(self.part)
        os.replace(self.part, name)
        _sync(os.path.dirname(name))

    def copy_over(self) -> None:
        """Where a rename is refused: what would have happened without it."""
        shutil.copyfile(self.part, self.target)
        self.discard()

    def discard(self) -> None:
        Path(self.part).unlink(missing_ok=True)


def is_special(target: str) -> bool:
    """Whether something is there that is no regular file: a device, a pipe, a folder."""
    return os.path.exists(target) and not os.path.isfile(target)


def has_room(target: str) -> bool:
    """Whether the disk holds the old and the new file at once, as far as the old one's size can tell."""
    real = os.path.realpath(target)
    if not os.path.exists(real):
        return True
    return shutil.disk_usage(os.path.dirname(real)).free > os.stat(real).st_size


def may_replace(target: str) -> bool:
    """Whether the program itself could write this file."""
    return not os.path.exists(target) or os.access(target, os.W_OK)


def _try(work: Callable[[], None]) -> None:
    try:
        work()
    except OSError:
        pass


def _sync(path: str) -> None:
    """To the disk itself, where the system and its file system can do that."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    _try(lambda: os.fsync(handle))
    os.close(handle)
