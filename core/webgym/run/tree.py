"""The process tree of a run: how much memory it takes, and that nothing of it stays behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Collection

import psutil

__all__ = ["adopt_orphans", "kill_descendant", "kill_descendants", "reap_orphans", "tree_memory"]

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans(adopt: bool = True) -> bool:
    """Make orphaned descendants children of this process (Linux), so that they can be ended and reaped here.

    Without it they would go to process 1, which in many containers reaps nobody.

    Args:
        adopt: False for no more: whoever adopts has to reap.

    Returns:
        Whether the system could do it.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0) == 0)


def reap_orphans(before: Collection[int], own: Collection[int]) -> None:
    """Reap adopted children that have ended.

    Args:
        before: children that were here before :func:`adopt_orphans`; someone else waits for them.
        own: children that a :class:`webgym.process.ManagedProcess` or the broker waits for.
    """
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process().children():
            if child.pid in before or child.pid in own:
                continue
            with contextlib.suppress(psutil.Error, ChildProcessError):
                if child.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(child.pid, os.WNOHANG)


def kill_descendants(spare: Collection[int] = (), timeout: float = 5.0) -> list[str]:
    """SIGKILL every descendant and wait for it.

    Args:
        spare: children that belong to somebody else in this process, left alone with their descendants.
        timeout: seconds to wait for all of them.

    Returns:
        Names of those that were still alive, for the log.
    """
    killed: list[str] = []
    children = [c for c in psutil.Process().children() if c.pid not in spare]
    victims: list[psutil.Process] = []
    for child in children:
        with contextlib.suppress(psutil.Error):
            victims += [child, *child.children(recursive=True)]
    for victim in victims:
        with contextlib.suppress(psutil.Error):
            if victim.status() != psutil.STATUS_ZOMBIE:
                name = victim.name()
                victim.kill()
                killed.append(name)
    psutil.wait_procs(victims, timeout=timeout)
    return killed


def kill_descendant(pid: int) -> bool:
    """SIGKILL one descendant of this process; False if there is none of that number that lives."""
    with contextlib.suppress(psutil.Error):
        victim = psutil.Process(pid)
        if victim.status() != psutil.STATUS_ZOMBIE and os.getpid() in (p.pid for p in victim.parents()):
            victim.kill()
            return True
    return False


def tree_memory() -> int:
    """Resident bytes of this process and its descendants; memory they share counts once for each of them."""
    total = 0
    with contextlib.suppress(psutil.Error):
        me = psutil.Process()
        for process in (me, *me.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total
