"""Bytes both ways between a browser and a server, for as long as both are there and something moves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from webgym_workers.browser.dial import Streams

__all__ = ["NearReader", "hanging_up", "relay"]

CHUNK_BYTES = 65536
IDLE_SECONDS = 300.0
LINGER_SECONDS = 10.0
"""How long who is sent the last bytes may take to read them."""


class NearReader(asyncio.StreamReader):
    """What a browser sends; notices that it hangs up also while nobody reads."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._gone = False
        self._break_off: Callable[[], None] | None = None

    def feed_eof(self) -> None:
        """The browser has hung up: it never closes half of a connection."""
        super().feed_eof()
        self._note_gone()

    def set_exception(self, exc: Exception) -> None:
        """The connection broke."""
        super().set_exception(exc)
        self._note_gone()

    @asynccontextmanager
    async def wanted(self) -> AsyncIterator[None]:
        """Work for the browser, broken off when it hangs up.

        Raises:
            TimeoutError: It did.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as patience:
            self._break_off = lambda: patience.reschedule(loop.time())
            if self._gone:
                self._break_off()
            try:
                yield
            finally:
                self._break_off = None

    def _note_gone(self) -> None:
        # Once: the end of the stream is told again when the connection is closed, and a timeout expires only once.
        if not self._gone:
            self._gone = True
            if self._break_off is not None:
                self._break_off()


@asynccontextmanager
async def hanging_up(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close a connection in the end: what is left to be sent then has a while, after an error none."""
    try:
        yield
    except BaseException:
        writer.transport.abort()
        raise
    writer.close()
    try:
        with contextlib.suppress(OSError):
            async with asyncio.timeout(LINGER_SECONDS):
                await writer.wait_closed()
    finally:
        writer.transport.abort()


async def relay(near: Streams, far: Streams) -> None:
    """Pass bytes both ways until either side hangs up.

    Raises:
        TimeoutError: Nothing has moved in either direction for :data:`IDLE_SECONDS`.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(IDLE_SECONDS) as idle:

        def moved() -> None:
            idle.reschedule(loop.time() + IDLE_SECONDS)

        pumps = [
            asyncio.ensure_future(_pump(source[0], sink[1], moved))
            for source, sink in ((near, far), (far, near))
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, moved: Callable[[], None]
) -> None:
    while data := await reader.read(CHUNK_BYTES):
        moved()
        writer.write(data)
        await writer.drain()
        moved()
