"""A setting of the C library's heap that a training loop wants."""

from __future__ import annotations

import ctypes

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h."""


def keep_freed_memory(limit: int = 256 << 20) -> bool:
    """Keeps freed memory in the process, so that the next update gets its tensors back without page faults.

    By default glibc returns the top of the heap to the system whenever a few hundred kilobytes are free
    there. An update allocates and frees several megabytes, so it would fault in some hundred pages, every
    time: a tenth of the update on a CPU.

    Args:
        limit: most bytes that stay with the process though they are free.

    Returns:
        Whether the C library took the setting; others than glibc do not, which costs speed alone.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    # Larger blocks get a mapping of their own each; 32 MiB is the most that glibc takes.
    return bool(mallopt(_TRIM_THRESHOLD, limit)) and bool(mallopt(_MMAP_THRESHOLD, 32 << 20))
