"""DevTools over a websocket, for browsers that are elsewhere.

The protocol is the ``websockets`` package's. It is driven here without I/O of its own, so that a message goes out in
the call that sends it and comes in where it arrives, as on the pipe.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import urllib.request
from http.client import HTTPException
from typing import cast
from urllib.error import HTTPError
from urllib.parse import SplitResult, urlsplit

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidURI, WebSocketException
from websockets.frames import Frame, Opcode
from websockets.headers import build_authorization_basic
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from webgym.errors import BrowserError
from webgym_workers.browser.transport import MAX_MESSAGE_BYTES, Receiver

__all__ = ["WebSocketTransport", "dial", "place_of", "websocket_url"]


class WebSocketTransport(asyncio.Protocol):
    """One websocket, made by :func:`dial`.

    Args:
        receiver: Who gets the messages.
        url: Where it goes.
    """

    def __init__(self, receiver: Receiver, url: str) -> None:
        uri = parse_uri(url)
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._receiver = receiver
        # No extensions: compressing costs more than it saves on a network that is fit for this.
        self._protocol = ClientProtocol(uri, max_size=MAX_MESSAGE_BYTES)
        self._user = uri.user_info
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytes] = []
        self._buffered = 0

    @property
    def closing(self) -> bool:
        """Whether it takes no more messages."""
        transport = self._transport
        return self._protocol.state is not State.OPEN or transport is None or transport.is_closing()

    def write(self, message: str) -> None:
        """Send a message."""
        if not self.closing:
            self._protocol.send_text(message.encode())
            self._flush()

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the server to go over to websockets."""
        # uvloop's transports are not asyncio's by class.
        self._transport = cast("asyncio.Transport", transport)
        request = self._protocol.connect()
        if self._user is not None:
            request.headers["Authorization"] = build_authorization_basic(*self._user)
        self._protocol.send_request(request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Take in bytes and hand on the messages that are whole."""
        self._protocol.receive_data(data)
        self._take_events()

    def eof_received(self) -> None:
        """The other side closed."""
        self._protocol.receive_eof()
        self._take_events()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._end(f"the connection broke: {exc}" if exc else "the connection was closed by the other side")

    def _take_events(self) -> None:
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._take_frame(event)
            elif isinstance(event, Response):
                self._take_response(event)
        refused = self._protocol.handshake_exc
        if refused is not None and not self.opened.done():
            self.opened.set_exception(refused)
        self._flush()
        if self._protocol.close_expected() and self._transport is not None:
            self._transport.close()

    def _take_response(self, response: Response) -> None:
        if self._protocol.state is State.OPEN and not self.opened.done():
            self.opened.set_result(None)

    def _take_frame(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.CONT):
            # Pings are answered by the protocol; a close makes it expect the end.
            return
        self._parts.append(bytes(frame.data))
        self._buffered += len(frame.data)
        if self._buffered > MAX_MESSAGE_BYTES:
            self._end(f"the browser sent a message of over {MAX_MESSAGE_BYTES >> 20} MiB")
        elif frame.fin:
            message = b"".join(self._parts)
            self._parts.clear()
            self._buffered = 0
            self._receiver.received(message.decode("utf-8", "replace"))

    def _flush(self) -> None:
        if self._transport is None:
            return
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            elif self._transport.can_write_eof():
                self._transport.write_eof()

    def _end(self, why: str) -> None:
        self._parts.clear()
        if not self.opened.done():
            self.opened.set_exception(ConnectionError(why))
        else:
            self._receiver.lost(self, why)


async def dial(receiver: Receiver, endpoint: str, timeout: float) -> WebSocketTransport:
    """A websocket to the browser at ``endpoint``.

    Args:
        receiver: Who gets its messages.
        endpoint: ``ws://``, ``wss://``, or ``http(s)://host:port`` of a browser that tells its websocket there.
        timeout: Seconds that all of it may take.

    Raises:
        BrowserError: There is no browser at that address, or it takes no connection.
    """
    place = place_of(endpoint)
    loop = asyncio.get_running_loop()
    made: asyncio.Transport | None = None
    try:
        async with asyncio.timeout(timeout):
            url = await loop.run_in_executor(None, websocket_url, endpoint, timeout)
            parts = urlsplit(url)
            secure = parts.scheme == "wss"
            made, connected = await loop.create_connection(
                lambda: WebSocketTransport(receiver, url),
                parts.hostname or "",
                parts.port or (443 if secure else 80),
                ssl=ssl.create_default_context() if secure else None,
            )
            await connected.opened
            return connected
    except BaseException as error:
        if made is not None:
            made.abort()
        if isinstance(error, BrowserError | asyncio.CancelledError):
            raise
        if isinstance(error, OSError | WebSocketException | TimeoutError | EOFError):
            why = _cause(error) or f"no answer in {timeout:g} s"
            raise BrowserError(f"cannot reach the browser at {place}: {why}; {_MEND}") from error
        raise


def _cause(error: object) -> str:
    """An error in a few words; asyncio's own of a refused connection are no help, and a timeout has none."""
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror | ssl.SSLError):
        return os.strerror(error.errno)
    return str(error)


_MEND = "browser.endpoint names a Chromium started with --remote-debugging-port"


def websocket_url(endpoint: str, timeout: float) -> str:
    """Address of a browser's websocket; asks the browser for it unless ``endpoint`` is one. Blocks.

    Raises:
        BrowserError: It is no address, or nobody there tells a websocket.
    """
    parts = urlsplit(endpoint)
    place = place_of(endpoint)
    if parts.scheme in ("ws", "wss"):
        try:
            parse_uri(endpoint)
        except (InvalidURI, ValueError) as error:
            raise BrowserError(f"browser.endpoint {place} is no address of a websocket: {error}") from error
        return endpoint
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BrowserError(
            f"browser.endpoint must be a ws://, wss://, http:// or https:// address, not {place}"
        )
    # Straight there: what the environment says of proxies is for the way out, and this is our own machinery.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    ask = f"{parts.scheme}://{_server(parts)}{parts.path.rstrip('/')}/json/version"
    request = urllib.request.Request(f"{ask}?{parts.query}" if parts.query else ask)
    if parts.username is not None:
        request.add_header("Authorization", build_authorization_basic(parts.username, parts.password or ""))
    try:
        with opener.open(request, timeout=timeout) as answer:
            told = urlsplit(str(json.loads(answer.read(1 << 20))["webSocketDebuggerUrl"]))
    except HTTPError as error:
        said = error.read(200).decode("utf-8", "replace").strip() or error.reason
        raise BrowserError(
            f"the browser at {place} does not tell its websocket: {said} ({error.code})"
        ) from error
    except (OSError, HTTPException) as error:
        why = getattr(error, "reason", error)
        raise BrowserError(f"cannot reach the browser at {place}: {_cause(why)}; {_MEND}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BrowserError(
            f"{place} is no browser: its /json/version names no webSocketDebuggerUrl"
        ) from error
    # The browser may know itself by another name than the one that leads to it from here.
    scheme = "wss" if parts.scheme == "https" else "ws"
    return told._replace(scheme=scheme, netloc=parts.netloc).geturl()


def _server(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def place_of(endpoint: str) -> str:
    """An endpoint for people: without what may be secret in it, user, password, path and query."""
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{_server(parts)}" if parts.netloc else repr(endpoint[:60])
