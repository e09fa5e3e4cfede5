"""A pipe's end as event loops want it: a file that somebody else will close, exactly once."""

from __future__ import annotations

import asyncio
from io import FileIO

__all__ = ["pipe_end"]


def pipe_end(descriptor: int, mode: str, loop: asyncio.AbstractEventLoop) -> FileIO:
    """A file for ``loop.connect_read_pipe`` and ``loop.connect_write_pipe``, whose transport closes the descriptor.

    asyncio's transport closes the file. uvloop's closes the descriptor by itself and the file after that. By then the
    number may be another file's, opened by another thread a moment ago, which would be closed instead; so there the
    file does not own it.

    Args:
        descriptor: belongs to the transport from here on.
        mode: ``rb`` or ``wb``.
        loop: that will have the transport.
    """
    return FileIO(descriptor, mode, closefd=not type(loop).__module__.startswith("uvloop"))
