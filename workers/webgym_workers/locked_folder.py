"""Temporary folders that are known to be somebody's by a lock, and the removal of those that are nobody's.

The kernel drops a lock with its owner, however that ends; and unlike a process id a lock means the same in all
containers that share a folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["LockedFolder", "sweep"]

_ROUNDS = 5
"""Dying children may still write into a folder while it is removed."""


class LockedFolder:
    """A fresh, empty folder that only this user may enter, locked for as long as it is ours.

    Attributes:
        path: The folder.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, place: Path, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Remove the folder; safe to call twice."""
        for _ in range(_ROUNDS):
            shutil.rmtree(self.path, ignore_errors=True)
            if not self.path.exists():
                break
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(place: Path, prefix: str) -> None:
    """Remove the folders under ``place`` whose names begin with ``prefix`` and that no living process holds."""
    for folder in place.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
