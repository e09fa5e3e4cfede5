"""Chromium's debugging pipe: messages are JSON objects ended by a null byte."""

from __future__ import annotations

import asyncio
import os

from webgym_workers.browser.cdp import CDPClient
from webgym_workers.browser.transport import MAX_MESSAGE_BYTES, Receiver

__all__ = ["PipeTransport", "open_pipe"]


class PipeTransport(asyncio.Protocol):
    """Both ends of the pipe.

    Args:
        receiver: Who gets the messages.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._reader: asyncio.ReadTransport | None = None
        self._writer: asyncio.WriteTransport | None = None

    def attach(self, reader: asyncio.ReadTransport, writer: asyncio.WriteTransport | None) -> None:
        """Use these; for whoever opens the pipe."""
        self._reader, self._writer = reader, writer

    @property
    def closing(self) -> bool:
        """Whether it takes no more messages."""
        return self._writer is None or self._writer.is_closing()

    def write(self, message: str) -> None:
        """Send a message."""
        if self._writer is not None:
            self._writer.write(message.encode() + b"\0")

    def abort(self) -> None:
        """Close both ends at once."""
        self._chunks.clear()
        if self._reader is not None:
            self._reader.close()
        # Not close(), which would first flush to a browser that may hang; and not twice, which asyncio cannot do.
        if self._writer is not None and not self._writer.is_closing():
            self._writer.abort()

    # asyncio.Protocol, reading side.

    def data_received(self, data: bytes) -> None:
        """Cut the stream at null bytes. Parts are kept and joined once, so the cost stays linear."""
        start = 0
        end = data.find(b"\0")
        while end >= 0:
            if self._chunks:
                self._chunks.append(data[start:end])
                message = b"".join(self._chunks)
                self._chunks.clear()
                self._buffered = 0
            else:
                message = data[start:end]
            self._receiver.received(message.decode("utf-8", "replace"))
            start = end + 1
            end = data.find(b"\0", start)
        if start < len(data):
            rest = data[start:] if start else data
            self._chunks.append(rest)
            self._buffered += len(rest)
            if self._buffered > MAX_MESSAGE_BYTES:
                self._receiver.lost(self, f"the browser sent a message of over {MAX_MESSAGE_BYTES >> 20} MiB")

    def eof_received(self) -> None:
        """The browser closed its end."""
        self._receiver.lost(self, "the browser ended")

    def connection_lost(self, exc: Exception | None) -> None:
        """The pipe broke."""
        self._receiver.lost(self, f"the browser's pipe broke: {exc}" if exc else "the browser ended")


class _WritePipe(asyncio.BaseProtocol):
    """Writing side of the pipe: losing it is losing the browser."""

    def __init__(self, pipe: PipeTransport) -> None:
        self._pipe = pipe

    def connection_lost(self, exc: Exception | None) -> None:
        """The browser no longer reads."""
        self._pipe.connection_lost(exc or BrokenPipeError("it no longer reads"))


async def open_pipe(read_fd: int, write_fd: int) -> CDPClient:
    """A client on two pipe ends: ``read_fd`` brings the browser's messages, ``write_fd`` takes ours.

    Both descriptors belong to the client from here on.
    """
    loop = asyncio.get_running_loop()
    client = CDPClient(loop)
    pipe = PipeTransport(client)
    client.use(pipe)
    incoming, outgoing = os.fdopen(read_fd, "rb", buffering=0), os.fdopen(write_fd, "wb", buffering=0)
    try:
        reader, _ = await loop.connect_read_pipe(lambda: pipe, incoming)
        pipe.attach(reader, None)
        writer, _ = await loop.connect_write_pipe(lambda: _WritePipe(pipe), outgoing)
    except BaseException:
        client.close()
        incoming.close()
        outgoing.close()
        raise
    pipe.attach(reader, writer)
    return client
