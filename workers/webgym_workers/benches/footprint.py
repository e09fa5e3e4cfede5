"""What this process and everything it has started take of the machine, and what they leave behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from webgym_workers.sharedmem import memory_folder

__all__ = ["CpuMeter", "Leftovers", "ZombieWatch", "proportional_bytes", "tree_bytes", "zombies"]


def _tree(root: int | None = None) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    return []


def proportional_bytes(process: psutil.Process, *, files: bool = True) -> int:
    """Memory of one process, of pages shared by several only its part; where the system does not tell, resident.

    A process that has ended takes none.

    Args:
        process: The process.
        files: Whether pages of files count, such as those of programs. Others who run the same program share them, so
            that they come and go with what else there is on the machine; and the kernel can drop them at any time.
    """
    wanted = ("Pss:",) if files else ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")
    with contextlib.suppress(psutil.Error):
        try:
            with open(f"/proc/{process.pid}/smaps_rollup", encoding="ascii") as lines:
                told = [int(words[1]) for words in map(str.split, lines) if words[0] in wanted]
            # Kernels before 5.9 tell only the sum.
            if len(told) == len(wanted):
                return sum(told) * 1024
        except ProcessLookupError:
            return 0
        except OSError:
            pass
        return int(process.memory_info().rss)
    return 0


def tree_bytes(root: int | None = None, *, descendants: bool = True, files: bool = True) -> int:
    """Memory of a process and its descendants, what they share counted once.

    Args:
        root: Its id; None is this process.
        descendants: False for the process alone.
        files: As for :func:`proportional_bytes`.
    """
    tree = _tree(root)
    return sum(proportional_bytes(process, files=files) for process in (tree if descendants else tree[:1]))


class CpuMeter:
    """Cores that this process and its descendants keep busy, from the making of the meter on.

    Processes that begin and end in between are not seen.
    """

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._before = _cpu_seconds()

    def cores(self) -> float:
        """Mean number of busy cores since the meter was made."""
        now = _cpu_seconds()
        used = sum(seconds - self._before.get(key, 0.0) for key, seconds in now.items())
        return used / max(1e-9, time.monotonic() - self._start)


def _cpu_seconds() -> dict[tuple[int, float], float]:
    found = {}
    for process in _tree():
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            found[process.pid, process.create_time()] = times.user + times.system
    return found


def zombies() -> set[tuple[int, float]]:
    """Descendants that have ended and nobody has reaped: process id and time of creation."""
    found = set()
    for process in _tree()[1:]:
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                found.add((process.pid, process.create_time()))
    return found


@dataclass
class ZombieWatch:
    """Tells zombies that stay from children that ended this very moment."""

    seen: set[tuple[int, float]] = field(default_factory=set)
    """At the latest look."""
    stayed: set[tuple[int, float]] = field(default_factory=set)
    """Those that were there at two looks in a row."""

    def look(self, now: set[tuple[int, float]]) -> None:
        """Take note of the zombies of a moment."""
        self.stayed |= self.seen & now
        self.seen = now


class Leftovers:
    """Names that appear in shared memory and in temporary folders, from the making of this object on.

    Only names that we, Chromium and X servers give are told, and of them only those that no other living program uses.
    """

    PREFIXES = (
        "webgym-chromium-",
        "webgym-display-",
        ".org.chromium",
        "org.chromium",
        ".com.google",
        ".X",
        "X",
    )

    def __init__(self, folders: Iterable[Path] | None = None) -> None:
        places = (memory_folder(), Path(tempfile.gettempdir()), Path("/tmp"), _SOCKETS)
        self._folders = list(dict.fromkeys(places if folders is None else folders))
        self._before = self._names()

    def left(self) -> list[str]:
        """Paths that were not there before, sorted."""
        return sorted(str(path) for path in self._names() - self._before if not _in_use(path))

    def _names(self) -> set[Path]:
        found: set[Path] = set()
        for folder in self._folders:
            with contextlib.suppress(OSError):
                found |= {folder / name for name in os.listdir(folder) if name.startswith(self.PREFIXES)}
        return found


_SOCKETS = Path("/tmp/.X11-unix")


def _in_use(path: Path) -> bool:
    """Whether another program holds the lock of a folder, answers on a socket, or is the server of an X lock."""
    with contextlib.suppress(OSError, ValueError):
        if path.is_socket():
            with socket.socket(socket.AF_UNIX) as caller:
                return caller.connect_ex(str(path)) == 0
        if path.name.startswith(".X"):
            return psutil.pid_exists(int(path.read_text()))
        held = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(held)
    return False
