"""Files in shared memory without a name: gone with their last descriptor, however its holder ends."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from webgym.errors import RunError

__all__ = ["memory_folder", "nameless_file"]

_MEMORY = Path("/dev/shm")


def memory_folder() -> Path:
    """The folder of shared memory, or the temporary folder where there is none."""
    return _MEMORY if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())


def nameless_file(size: int, what: str, folder: Path | None = None) -> int:
    """Descriptor of a fresh file of zeros.

    All of it is allocated now: a sparse file in a full memory volume would kill with SIGBUS whoever writes to it later.

    Args:
        size: bytes.
        what: what it is for, for the error.
        folder: where; by default :func:`memory_folder`.

    Raises:
        RunError: it does not fit.
    """
    place = folder or memory_folder()
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            return os.dup(file.fileno())
    except OSError as error:
        raise RunError(
            f"cannot reserve {size / 2**20:.1f} MiB of shared memory in {place} for {what}: {error.strerror}; "
            "free some, give the container a larger memory volume, or run fewer browsers (workers.maxBrowsers)"
        ) from error
