"""As much of the X11 protocol as reading a screen takes: connect, follow damage, hold the server still.

Requests are written, answers and events read, on the event loop; nothing blocks. A library would bring the whole
protocol for the eight requests used here: python-xlib blocks and is LGPL, xcffib needs libxcb beside it.

Protocol: https://www.x.org/releases/current/doc/xproto/x11protocol.html, and damageproto for the extension.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from webgym_workers.browser.faults import DisplayGone

__all__ = ["DamageEvent", "XConnection"]

SOCKETS = Path("/tmp/.X11-unix")
"""Where X servers listen; the protocol's libraries have it built in."""

_AUTH_NAME = b"MIT-MAGIC-COOKIE-1"
_QUERY_EXTENSION, _GRAB_SERVER, _UNGRAB_SERVER, _GET_INPUT_FOCUS = 98, 36, 37, 43
_DAMAGE_QUERY_VERSION, _DAMAGE_CREATE, _DAMAGE_SUBTRACT = 0, 1, 3
_BOUNDING_BOX = 2
"""Damage is reported when its bounding box grows: a page that draws without end fills no buffer while nobody looks."""
_PACKET = 32
_REPLY, _ERROR, _GENERIC_EVENT = 1, 0, 35


class DamageEvent(NamedTuple):
    """Bounding box of what was drawn since the damage was last cleared, in pixels of the screen."""

    x: int
    y: int
    width: int
    height: int


class XConnection:
    """A connection to one X server; made by :meth:`open`.

    Attributes:
        root: Id of the root window.
        width: Width of the screen, pixels.
        height: Height of the screen, pixels.
        on_damage: Called with each :class:`DamageEvent`.
        gone: Why the connection takes no more requests, or None while it does.
    """

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.root = self.width = self.height = 0
        self.on_damage: Callable[[DamageEvent], None] | None = None
        self.gone: DisplayGone | None = None
        self._sock = sock
        self._loop = loop
        self._buffer = bytearray()
        self._replies: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self._sequence = 0
        self._damage_opcode = self._damage_event = self._damage_id = 0

    @classmethod
    async def open(cls, display: int, cookie: bytes, timeout: float) -> XConnection:
        """Connect to display ``:N``.

        Args:
            display: Its number.
            cookie: The secret of its MIT-MAGIC-COOKIE-1 authority.
            timeout: Deadline, seconds.

        Raises:
            DisplayGone: There is none, it refuses us, or it lacks the damage extension.
        """
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        connection = cls(sock, loop)
        try:
            async with asyncio.timeout(timeout):
                await loop.sock_connect(sock, str(SOCKETS / f"X{display}"))
                base = await connection._set_up(cookie)
                loop.add_reader(sock, connection._receive)
                await connection._follow_damage(base)
        except (OSError, TimeoutError, struct.error) as error:
            connection.close()
            why = f"no answer in {timeout:g} s" if isinstance(error, TimeoutError) else str(error)
            raise DisplayGone(f"cannot connect to display :{display}: {why}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    async def _set_up(self, cookie: bytes) -> int:
        """The protocol's greeting; returns the first id that we may give to a resource."""
        await self._loop.sock_sendall(
            self._sock,
            struct.pack("<BxHHHHxx", ord("l"), 11, 0, len(_AUTH_NAME), len(cookie))
            + _padded(_AUTH_NAME)
            + _padded(cookie),
        )
        status, length, words = struct.unpack("<BBxxxxH", await self._exactly(8))
        body = await self._exactly(words * 4)
        if status != 1:
            raise DisplayGone(f"the display refuses us: {body[:length].decode('latin-1')!r}")
        base, vendor, formats = struct.unpack_from("<4xI8xH3xB", body)
        screen = 32 + (vendor + 3) // 4 * 4 + 8 * formats
        self.root = struct.unpack_from("<I", body, screen)[0]
        self.width, self.height = struct.unpack_from("<HH", body, screen + 20)
        return int(base)

    async def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = await self._loop.sock_recv(self._sock, count - len(data))
            if not more:
                raise DisplayGone("the display closed the connection")
            data += more
        return data

    async def _follow_damage(self, base: int) -> None:
        name = b"DAMAGE"
        answer = await self._ask(
            struct.pack("<BxHHxx", _QUERY_EXTENSION, 2 + len(_padded(name)) // 4, len(name)) + _padded(name)
        )
        present, self._damage_opcode, self._damage_event = struct.unpack_from("<BBB", answer, 8)
        if not present:
            raise DisplayGone("the display has no DAMAGE extension")
        await self._ask(struct.pack("<BBHII", self._damage_opcode, _DAMAGE_QUERY_VERSION, 3, 1, 1))
        self._damage_id = base
        self._send(
            struct.pack(
                "<BBHIIBxxx",
                self._damage_opcode,
                _DAMAGE_CREATE,
                4,
                self._damage_id,
                self.root,
                _BOUNDING_BOX,
            )
        )
        await self.sync()

    async def sync(self) -> None:
        """Wait until the server has done all that was asked before; events up to there have then been delivered.

        Raises:
            DisplayGone: The server ended.
        """
        await self._ask(struct.pack("<BxH", _GET_INPUT_FOCUS, 1))

    def clear_damage(self) -> None:
        """Forget what was drawn: the next drawing is reported wherever it is."""
        self._send(struct.pack("<BBHIII", self._damage_opcode, _DAMAGE_SUBTRACT, 4, self._damage_id, 0, 0))

    def grab(self) -> None:
        """Let the server serve nobody else until :meth:`ungrab`; takes effect with the next :meth:`sync`."""
        self._send(struct.pack("<BxH", _GRAB_SERVER, 1))

    def ungrab(self) -> None:
        """End :meth:`grab`."""
        self._send(struct.pack("<BxH", _UNGRAB_SERVER, 1))

    def close(self, why: DisplayGone | None = None) -> None:
        """Close the connection; what waits for an answer fails. Safe to call twice."""
        if self.gone is not None:
            return
        self.gone = why or DisplayGone("the display was closed")
        self._loop.remove_reader(self._sock)
        self._sock.close()
        while self._replies:
            _, future = self._replies.popleft()
            if not future.done():
                future.set_exception(self.gone)

    # The wire. Requests are a few bytes each and the server is local: a socket buffer that is full means a server
    # that has stopped, and is treated as one.

    def _send(self, request: bytes) -> None:
        if self.gone is not None:
            raise self.gone
        try:
            sent = self._sock.send(request)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.close(DisplayGone(f"the display ended: {error.strerror}"))
            sent = len(request)
        if sent != len(request):
            self.close(DisplayGone("the display reads no more requests"))
        if self.gone is not None:
            raise self.gone
        self._sequence = (self._sequence + 1) & 0xFFFF

    async def _ask(self, request: bytes) -> bytes:
        self._send(request)
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._replies.append((self._sequence, future))
        return await future

    def _receive(self) -> None:
        try:
            data = self._sock.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(DisplayGone(f"the display ended: {error.strerror}"))
            return
        if not data:
            self.close(DisplayGone("the display ended"))
            return
        self._buffer += data
        while len(self._buffer) >= _PACKET:
            size = _PACKET
            if self._buffer[0] in (_REPLY, _GENERIC_EVENT):
                size += 4 * struct.unpack_from("<I", self._buffer, 4)[0]
                if len(self._buffer) < size:
                    return
            packet = bytes(self._buffer[:size])
            del self._buffer[:size]
            self._handle(packet)

    def _handle(self, packet: bytes) -> None:
        kind = packet[0]
        if kind in (_REPLY, _ERROR):
            sequence = struct.unpack_from("<H", packet, 2)[0]
            # Only some requests have an answer, but any may fail: an error belongs to the reply it stands in for, or
            # to a request without one, which is then a mistake of ours.
            if self._replies and self._replies[0][0] == sequence:
                _, future = self._replies.popleft()
                if future.done():
                    return
                if kind == _ERROR:
                    future.set_exception(DisplayGone(f"the display refused a request (error {packet[1]})"))
                else:
                    future.set_result(packet)
            elif kind == _ERROR:
                self.close(DisplayGone(f"the display refused a request (error {packet[1]})"))
        elif kind & 0x7F == self._damage_event and self._damage_event:
            with contextlib.suppress(struct.error):
                if self.on_damage is not None:
                    self.on_damage(DamageEvent(*struct.unpack_from("<hhHH", packet, 16)))


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
