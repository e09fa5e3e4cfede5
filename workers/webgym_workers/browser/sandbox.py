"""Whether Chromium's own sandbox works here."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

__all__ = ["sandbox_obstacle"]

CLONE_NEWUSER = 0x10000000


@lru_cache(maxsize=8)
def sandbox_obstacle(executable: Path) -> str | None:
    """Why Chromium's sandbox cannot work here, or None when nothing is in its way. Probed once per program.

    Chromium refuses to sandbox as root. Otherwise it needs user namespaces, which containers and some
    distributions forbid, or its set-uid helper beside the program.
    """
    if sys.platform != "linux":
        return None
    if os.geteuid() == 0:
        return "running as root"
    helper = executable.with_name("chrome-sandbox")
    try:
        status = helper.stat()
        if status.st_uid == 0 and status.st_mode & stat.S_ISUID:
            return None
    except OSError:
        pass
    script = f"import ctypes,sys; sys.exit(0 if ctypes.CDLL(None).unshare({CLONE_NEWUSER}) == 0 else 1)"
    try:
        probe = subprocess.run([sys.executable, "-I", "-S", "-c", script], timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"user namespaces cannot be probed ({error})"
    if probe.returncode == 0:
        return None
    return "user namespaces are forbidden and there is no set-uid chrome-sandbox"
