"""A child that the kernel kills when its parent ends, however the parent ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

__all__ = ["die_with_parent"]

_PR_SET_PDEATHSIG = 1
_libc = ctypes.PyDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(parent: int) -> Callable[[], None] | None:
    """What to run in a new child before its program (``preexec_fn``); None where there is no such thing.

    One system call through a library that is bound beforehand: it takes no lock that another thread could have
    held when the child was forked. The signal is SIGKILL, and comes when the *thread* that forked ends.

    Args:
        parent: this process's id.
    """
    if _libc is None:
        return None
    libc = _libc

    def in_child() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # It died before the line above: no signal will come.
            os._exit(128 + signal.SIGKILL)

    return in_child
