"""The end of a pipe is closed once: a descriptor that somebody opens at that moment stays open."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from io import FileIO

import pytest

from webgym_workers.browser.pipe_end import pipe_end

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop]
try:
    import uvloop

    LOOPS.append(uvloop.new_event_loop)
except ImportError:  # Windows
    pass


@pytest.mark.parametrize("new_loop", LOOPS)
def test_nobody_is_robbed_of_a_descriptor(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[int] = []

    class SlowlyClosed(FileIO):
        """Another thread is quicker, and opens a file with the lowest number that is free."""

        def close(self) -> None:
            if not self.closed:
                others.append(os.open(os.devnull, os.O_RDONLY))
            super().close()

    monkeypatch.setattr("webgym_workers.browser.pipe_end.FileIO", SlowlyClosed)

    async def use() -> list[int]:
        loop = asyncio.get_running_loop()
        read, write = os.pipe()
        writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, pipe_end(write, "wb", loop))
        reader, _ = await loop.connect_read_pipe(asyncio.Protocol, pipe_end(read, "rb", loop))
        writer.abort()
        reader.close()
        while len(others) < 2:
            await asyncio.sleep(0)
        return [read, write]

    loop = new_loop()
    try:
        ends = loop.run_until_complete(use())
    finally:
        loop.close()
    for descriptor in others:
        os.fstat(descriptor)  # or it was closed
        os.close(descriptor)
    for descriptor in ends:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
