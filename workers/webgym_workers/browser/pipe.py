"""Chromium's debugging pipe: messages are JSON objects ended by a null byte."""

from __future__ import annotations

import asyncio
import os
from io import FileIO

from webgym_workers.browser.cdp import CDPClient
from webgym_workers.browser.pipe_end import pipe_end
from webgym_workers.browser.transport import MAX_MESSAGE_BYTES, Receiver

__all__ = ["PipeTransport", "open_pipe"]


_READ_BYTES = 65536
"""What a pipe holds. asyncio's own transport asks for four times as much, which costs a fresh mapping each time."""


class PipeTransport:
    """Both ends of the pipe; reading begins with :meth:`listen`.

    Args:
        receiver: Who gets the messages.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._incoming: FileIO | None = None
        self._writer: asyncio.WriteTransport | None = None

    def listen(self, incoming: FileIO) -> None:
        """Take messages from this end, which belongs to the transport from here on."""
        os.set_blocking(incoming.fileno(), False)
        self._incoming = incoming
        self._loop.add_reader(incoming.fileno(), self._readable, incoming.fileno())

    def speak(self, writer: asyncio.WriteTransport) -> None:
        """Send messages over this end."""
        self._writer = writer

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
        if self._incoming is not None:
            # Before the number can be another file's.
            self._loop.remove_reader(self._incoming.fileno())
            self._incoming.close()
            self._incoming = None
        # Not close(), which would first flush to a browser that may hang; and not twice, which asyncio cannot do.
        if self._writer is not None and not self._writer.is_closing():
            self._writer.abort()

    def _readable(self, fd: int) -> None:
        try:
            data = os.read(fd, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.broken(error)
            return
        if data:
            self.data_received(data)
        else:
            self._receiver.lost(self, "the browser ended")

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

    def broken(self, error: Exception | None) -> None:
        """One of the ends broke."""
        self._receiver.lost(self, f"the browser's pipe broke: {error}" if error else "the browser ended")


class _WritePipe(asyncio.BaseProtocol):
    """Writing side of the pipe: losing it is losing the browser."""

    def __init__(self, pipe: PipeTransport) -> None:
        self._pipe = pipe

    def connection_lost(self, exc: Exception | None) -> None:
        """The browser no longer reads."""
        self._pipe.broken(exc or BrokenPipeError("it no longer reads"))


async def open_pipe(read_fd: int, write_fd: int) -> CDPClient:
    """A client on two pipe ends: ``read_fd`` brings the browser's messages, ``write_fd`` takes ours.

    Both descriptors belong to the client from here on.
    """
    loop = asyncio.get_running_loop()
    client = CDPClient(loop)
    pipe = PipeTransport(client)
    client.use(pipe)
    incoming = FileIO(read_fd, "rb")
    outgoing = pipe_end(write_fd, "wb", loop)
    try:
        writer, _ = await loop.connect_write_pipe(lambda: _WritePipe(pipe), outgoing)
        pipe.speak(writer)
        pipe.listen(incoming)
    except BaseException:
        client.close()
        incoming.close()
        outgoing.close()
        raise
    return client
