"""The Chrome DevTools Protocol over Chromium's debugging pipe: commands with deadlines, events, sessions.

One :class:`CDPClient` per browser process, one :class:`CDPSession` per attached target (flat mode). Messages
are JSON objects ended by a null byte. All of it runs on one event loop; no method blocks.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from webgym_workers.browser.faults import BrowserGone, CDPError, CDPTimeout, TargetClosed, TargetCrashed

__all__ = ["BYPASS", "CDPClient", "CDPSession", "EventHandler", "open_pipe"]

log = logging.getLogger(__name__)

EventHandler = Callable[[dict[str, Any]], None]

MAX_IN_FLIGHT = 5
"""Commands of one session that the browser may be working on at a time; the rest wait their turn."""

MAX_MESSAGE_BYTES = 256 << 20
"""A single message above this is taken for a broken stream rather than buffered without end."""

DEFAULT_TIMEOUT = 2.0
"""Seconds until a command without a deadline of its own fails."""

BYPASS = frozenset(
    {
        "Page.handleJavaScriptDialog",
        "Page.close",
        "Page.crash",
        "Page.stopLoading",
        "Runtime.terminateExecution",
        "Target.closeTarget",
    }
)
"""Commands that skip the cap: they unblock the tab, and five calls blocked by an alert must not hold back
its answer.
"""


class _Command:
    """One command from the call to its answer.

    ``future`` may be done (deadline, cancellation) while the browser still owes the answer: the command then
    keeps its place among those in flight until the answer comes, so that the cap counts what the browser
    really has on its plate.
    """

    __slots__ = ("capped", "future", "id", "method", "session", "timer", "wire")

    def __init__(
        self, session: CDPSession, method: str, wire: bytes, id: int, future: asyncio.Future[dict[str, Any]]
    ) -> None:
        self.session = session
        self.method = method
        self.wire = wire
        self.id = id
        self.future = future
        self.timer: asyncio.TimerHandle | None = None
        self.capped = session.capped and method not in BYPASS

    def fail(self, error: BaseException) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            self.future.set_exception(error)


def _retrieve(future: asyncio.Future[dict[str, Any]]) -> None:
    """Mark an exception as seen: whoever posts without awaiting does not want asyncio's warning."""
    if not future.cancelled():
        future.exception()


class CDPSession:
    """Commands and events of one target.

    Attributes:
        id: The protocol's session id; None for the browser itself.
        closed: Why the session takes no more commands, or None while it does.
    """

    def __init__(self, client: CDPClient, id: str | None, *, capped: bool = True) -> None:
        self.client = client
        self.id = id
        self.capped = capped
        self.closed: BaseException | None = None
        self._handlers: dict[str, list[EventHandler]] = {}
        self._in_flight: dict[int, _Command] = {}
        self._capped_in_flight = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._waiting: deque[_Command] = deque()

    def post(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> asyncio.Future[dict[str, Any]]:
        """Send a command now, or when the cap allows it, and return the future of its result.

        Commands of one session reach the browser in the order of the calls (those in :data:`BYPASS`
        overtake). The deadline counts from this call, time in the queue included. An exception that nobody
        retrieves is dropped.
        """
        loop = self.client.loop
        future: asyncio.Future[dict[str, Any]] = loop.create_future()
        future.add_done_callback(_retrieve)
        if self.closed is not None:
            future.set_exception(self.closed)
            return future
        id = self.client.next_id()
        message: dict[str, Any] = {"id": id, "method": method}
        if params:
            message["params"] = params
        if self.id is not None:
            message["sessionId"] = self.id
        wire = json.dumps(message, separators=(",", ":")).encode() + b"\0"
        command = _Command(self, method, wire, id, future)
        if timeout is not None:
            command.timer = loop.call_later(timeout, self._expire, command, timeout)
        if command.capped and (self._capped_in_flight >= MAX_IN_FLIGHT or self._waiting):
            self._waiting.append(command)
        else:
            self._send(command)
        return future

    async def call(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> dict[str, Any]:
        """Send a command and wait for its result.

        Raises:
            CDPTimeout: No answer within ``timeout`` seconds.
            CDPError: The browser refused the command.
            TargetCrashed, TargetClosed: The target died or was closed, before or meanwhile.
            BrowserGone: The browser process ended.
        """
        return await self.post(method, params, timeout=timeout)

    def on(self, method: str, handler: EventHandler) -> Callable[[], None]:
        """Call ``handler(params)`` for each event of this name, in order; returns the unsubscriber."""
        self._handlers.setdefault(method, []).append(handler)

        def off() -> None:
            handlers = self._handlers.get(method, [])
            if handler in handlers:
                handlers.remove(handler)

        return off

    def waiter(self) -> asyncio.Future[None]:
        """A future for an event of this target; it fails like a command when the target goes away."""
        future: asyncio.Future[None] = self.client.loop.create_future()
        if self.closed is not None:
            future.set_exception(self.closed)
        else:
            self._waiters.add(future)
            future.add_done_callback(self._waiters.discard)
        return future

    def close(self, error: BaseException) -> None:
        """Fail everything pending with ``error`` and take no further commands."""
        if self.closed is not None:
            return
        self.closed = error
        for waiter in tuple(self._waiters):
            if not waiter.done():
                waiter.set_exception(error)
        commands = [*self._in_flight.values(), *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        self._capped_in_flight = 0
        for command in commands:
            self.client.forget(command.id)
            command.fail(error)

    def _send(self, command: _Command) -> None:
        self._in_flight[command.id] = command
        if command.capped:
            self._capped_in_flight += 1
        self.client.write(command)

    def _expire(self, command: _Command, timeout: float) -> None:
        if not command.future.done():
            command.future.set_exception(CDPTimeout(f"{command.method}: no answer in {timeout:g} s"))

    def settle(self, command: _Command, message: dict[str, Any]) -> None:
        """Take the browser's answer to ``command`` and send what waits for its place."""
        self._in_flight.pop(command.id, None)
        if command.capped:
            self._capped_in_flight -= 1
        if command.timer is not None:
            command.timer.cancel()
        if not command.future.done():
            error = message.get("error")
            if error is None:
                command.future.set_result(message.get("result") or {})
            else:
                code, text = int(error.get("code", 0)), str(error.get("message", error))
                command.future.set_exception(CDPError(command.method, code, text))
        while self._waiting and self._capped_in_flight < MAX_IN_FLIGHT:
            queued = self._waiting.popleft()
            # A caller that gave up while its command was queued: it never reaches the browser.
            if not queued.future.done():
                self._send(queued)
            elif queued.timer is not None:
                queued.timer.cancel()

    def emit(self, method: str, params: dict[str, Any]) -> None:
        """Hand an event to its subscribers; one that raises is logged and does not disturb the rest."""
        for handler in tuple(self._handlers.get(method, ())):
            try:
                handler(params)
            except Exception:
                log.exception("handler of %s failed", method)


class CDPClient(asyncio.Protocol):
    """The pipe to one browser: routes answers to commands and events to sessions.

    Attributes:
        browser: The session of the browser itself (no cap).
        gone: Why the connection ended, or None while it is alive.
        closed: Done when it has ended.
        pending: Commands that the browser has not answered yet, by id.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.gone: BaseException | None = None
        self.closed: asyncio.Future[None] = loop.create_future()
        self.browser = CDPSession(self, None, capped=False)
        self._sessions: dict[str, CDPSession] = {}
        self.pending: dict[int, _Command] = {}
        self._last_id = 0
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._writer: asyncio.WriteTransport | None = None
        self._reader: asyncio.ReadTransport | None = None
        self.browser.on("Target.detachedFromTarget", self._on_detached)

    def attach(self, reader: asyncio.ReadTransport, writer: asyncio.WriteTransport | None) -> None:
        """Use these transports; for whoever opens the pipe."""
        self._reader, self._writer = reader, writer

    def session(self, id: str) -> CDPSession:
        """The session of this id, made on first use."""
        session = self._sessions.get(id)
        if session is None:
            session = self._sessions[id] = CDPSession(self, id)
            session.on("Inspector.targetCrashed", lambda _: session.close(TargetCrashed("the tab crashed")))
            # Of a frame in a process of its own, the session of the frame around it tells.
            session.on("Target.detachedFromTarget", self._on_detached)
            if self.gone is not None:
                session.close(self.gone)
        return session

    def close(self, error: BaseException | None = None) -> None:
        """Drop the connection; everything pending fails with ``error`` (:class:`BrowserGone` if None)."""
        if self.gone is not None:
            return
        self.gone = error or BrowserGone("the browser was closed")
        if self._reader is not None:
            self._reader.close()
        # Not close(), which would first flush to a browser that may hang; and not twice, which asyncio cannot do.
        if self._writer is not None and not self._writer.is_closing():
            self._writer.abort()
        for session in (self.browser, *self._sessions.values()):
            session.close(self.gone)
        self._sessions.clear()
        self._chunks.clear()
        if not self.closed.done():
            self.closed.set_result(None)

    # What sessions use.

    def next_id(self) -> int:
        """A fresh message id."""
        self._last_id += 1
        return self._last_id

    def write(self, command: _Command) -> None:
        """Put a command on the pipe; its answer will be routed back to its session."""
        self.pending[command.id] = command
        if self._writer is None or self._writer.is_closing():
            self.close(BrowserGone("the browser's pipe is closed"))
            return
        self._writer.write(command.wire)

    def forget(self, id: int) -> None:
        """Ignore the answer to this command, should it come."""
        self.pending.pop(id, None)

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
            self._dispatch(message)
            start = end + 1
            end = data.find(b"\0", start)
        if start < len(data):
            rest = data[start:] if start else data
            self._chunks.append(rest)
            self._buffered += len(rest)
            if self._buffered > MAX_MESSAGE_BYTES:
                self.close(BrowserGone(f"the browser sent a message of over {MAX_MESSAGE_BYTES >> 20} MiB"))

    def eof_received(self) -> None:
        """The browser closed its end."""
        self.close(BrowserGone("the browser ended"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The pipe broke."""
        self.close(BrowserGone(f"the browser's pipe broke: {exc}" if exc else "the browser ended"))

    def _dispatch(self, data: bytes) -> None:
        try:
            message = json.loads(data.decode("utf-8", "replace"))
        except ValueError:
            log.warning("not JSON from the browser: %r", data[:200])
            return
        id = message.get("id")
        if id is not None:
            command = self.pending.pop(id, None)
            if command is not None:
                command.session.settle(command, message)
            return
        session_id = message.get("sessionId")
        session = self.browser if session_id is None else self._sessions.get(session_id)
        if session is not None:
            session.emit(message["method"], message.get("params") or {})

    def _on_detached(self, params: dict[str, Any]) -> None:
        session = self._sessions.pop(params["sessionId"], None)
        if session is not None:
            session.close(TargetClosed("the tab was closed"))


class _WritePipe(asyncio.BaseProtocol):
    """Writing side of the pipe: losing it is losing the browser."""

    def __init__(self, client: CDPClient) -> None:
        self._client = client

    def connection_lost(self, exc: Exception | None) -> None:
        """The browser no longer reads."""
        self._client.close(BrowserGone("the browser's pipe broke"))


async def open_pipe(read_fd: int, write_fd: int) -> CDPClient:
    """A client on two pipe ends: ``read_fd`` brings the browser's messages, ``write_fd`` takes ours.

    Both descriptors belong to the client from here on.
    """
    loop = asyncio.get_running_loop()
    client = CDPClient(loop)
    incoming, outgoing = os.fdopen(read_fd, "rb", buffering=0), os.fdopen(write_fd, "wb", buffering=0)
    try:
        reader, _ = await loop.connect_read_pipe(lambda: client, incoming)
        client.attach(reader, None)
        writer, _ = await loop.connect_write_pipe(lambda: _WritePipe(client), outgoing)
    except BaseException:
        client.close()
        incoming.close()
        outgoing.close()
        raise
    client.attach(reader, writer)
    return client
