"""Temporary profile folders that go away however we end.

Three lines of defence: :meth:`Profile.remove` after the browser stopped; a janitor, one small shell for each
of our processes, that removes our folders when we are gone (its stdin ends); and a sweep at the first launch
for what a kill of everything left behind.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import subprocess
import tempfile
from pathlib import Path

from webgym.errors import BrowserError
from webgym.janitor import start_janitor
from webgym_workers.locked_folder import LockedFolder, sweep

__all__ = ["Profile"]

PREFIX = "webgym-chromium-"
LONGEST_ROOT = 20
"""Characters. The path of a Unix socket has at most 103; a folder of ours in it takes 40, Chromium's share 43."""


class Profile:
    """A fresh, empty profile folder, locked as ours.

    Attributes:
        path: The folder.

    Raises:
        BrowserError: The temporary folder cannot be written.
    """

    def __init__(self) -> None:
        root = _root()
        try:
            self._folder = LockedFolder(root, f"{PREFIX}{_owner(root)}-")
        except OSError as error:
            raise BrowserError(
                f"cannot make a browser profile in {root}: {error.strerror}; set TMPDIR to a writable folder"
            ) from error
        self.path = self._folder.path

    def remove(self) -> None:
        """Remove the folder; safe to call twice."""
        self._folder.remove()


class _Janitor:
    """The shell that outlives us; one per process, made on first use. A forked child makes its own."""

    def __init__(self, root: Path) -> None:
        self.pid = os.getpid()
        self.owner = f"{self.pid}-{secrets.token_hex(3)}"
        sweep(root, PREFIX)
        self._process = start_janitor(str(root / f"{PREFIX}{self.owner}-"))

    def dismiss(self) -> None:
        """Let it look around a last time, at the end of this process, and reap it."""
        if self.pid != os.getpid():
            # A forked child's copy: the janitor belongs to the parent.
            self._process.returncode = 0
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)


def _root() -> Path:
    """Where profiles go: the temporary folder, unless its name is too long for the sockets Chromium makes."""
    root = Path(tempfile.gettempdir())
    short = Path("/tmp")
    return short if len(str(root)) > LONGEST_ROOT and os.access(short, os.W_OK) else root


_janitor: _Janitor | None = None


def _owner(root: Path) -> str:
    """The part of folder names that stands for this process."""
    global _janitor
    if _janitor is None or _janitor.pid != os.getpid():
        _janitor = _Janitor(root)
    return _janitor.owner


# Registered at import, so it comes after the handlers of modules that import this one: browsers are ended by then.
@atexit.register
def _dismiss_janitor() -> None:
    if _janitor is not None:
        _janitor.dismiss()
