"""Commands and events of one DevTools target: with deadlines, a cap, priorities, and retries where they are safe."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from webgym_workers.browser.command import (
    DEFAULT_TIMEOUT,
    REPEATABLE,
    RETRIES,
    Command,
    CommandQueue,
    Priority,
    may_repeat,
    pause_before,
)
from webgym_workers.browser.faults import BrowserFault, CDPError, CDPTimeout, ConnectionLost

if TYPE_CHECKING:
    from webgym_workers.browser.cdp import CDPClient
    from webgym_workers.browser.journal import SessionJournal

__all__ = ["RESTORED", "CDPSession", "EventHandler"]

log = logging.getLogger(__name__)

EventHandler = Callable[[dict[str, Any]], None]

RESTORED = "WebGym.sessionRestored"
"""An event of our own: the connection broke and is there again. Events that were sent meanwhile are lost."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


def _retrieve(future: asyncio.Future[dict[str, Any]]) -> None:
    """Mark an exception as seen: whoever posts without awaiting does not want asyncio's warning."""
    if not future.cancelled():
        future.exception()


class CDPSession:
    """Commands and events of one target.

    Attributes:
        id: The protocol's session id; None for the browser itself. Another one after a reconnect.
        capped: Whether its commands count among those in flight.
        closed: Why the session takes no more commands, or None while it does.
        journal: What has to be said again after a reconnect; None where there is none.
    """

    def __init__(
        self, client: CDPClient, id: str | None, *, capped: bool = True, journal: SessionJournal | None = None
    ) -> None:
        self.client = client
        self.id = id
        self.closed: BaseException | None = None
        self.journal = journal
        self.capped = capped
        self._handlers: dict[str, list[EventHandler]] = {}
        self._queue = CommandQueue()
        self._waiters: set[asyncio.Future[None]] = set()
        if journal is not None:
            self.on("Page.frameNavigated", journal.navigated)

    def post(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        priority: Priority = Priority.NORMAL,
    ) -> asyncio.Future[dict[str, Any]]:
        """Send a command now, or when the cap allows it, and return the future of its result. Never sent twice.

        Commands of one session and priority reach the browser in the order of the calls (those in
        :data:`~webgym_workers.browser.command.BYPASS` overtake). The deadline counts from this call, time in
        the queue included. An exception that nobody retrieves is dropped.
        """
        command = self._command(method, params, timeout, priority)
        if command.future.done():
            return command.future
        if self._queue.admit(command):
            self.client.write(self, command)
        return command.future

    async def call(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        priority: Priority = Priority.NORMAL,
        repeatable: bool | None = None,
    ) -> dict[str, Any]:
        """Send a command and wait for its result.

        Args:
            method: Such as ``Runtime.evaluate``.
            params: Its parameters.
            timeout: Seconds that the browser has for an answer, each time.
            priority: Place in the tab's queue.
            repeatable: Whether doing it twice does no harm. Such a command is sent up to three times more when it gets
                no answer in time, when the document is replaced under it, or when the connection breaks; any other
                is sent once. None asks :data:`~webgym_workers.browser.command.REPEATABLE`.

        Raises:
            CDPTimeout: No answer within ``timeout`` seconds.
            CDPError: The browser refused the command.
            TargetCrashed, TargetClosed: The target died or was closed, before or meanwhile.
            ConnectionLost: The connection to a remote browser broke; whether the command was carried out is not known.
            BrowserGone: The browser process ended, or a remote one could not be reached again.
        """
        retries = RETRIES if (method in REPEATABLE if repeatable is None else repeatable) else 0
        for retry in range(1, retries + 1):
            try:
                return await self.post(method, params, timeout=timeout, priority=priority)
            except BrowserFault as error:
                if not may_repeat(error):
                    raise
                log.debug("%s is sent again: %s", method, error)
            await asyncio.sleep(pause_before(retry))
        return await self.post(method, params, timeout=timeout, priority=priority)

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
        self._fail_all(error)

    # What the client uses.

    def settle(self, command: Command, message: dict[str, Any]) -> None:
        """Take the browser's answer to ``command`` and send what waits for its place."""
        self._queue.leave(command)
        command.end()
        error = message.get("error")
        result = message.get("result") or {}
        if error is None and self.journal is not None:
            # Also when the caller has given up: the browser did it.
            self.journal.note(command.method, command.params or {}, result)
        if not command.future.done():
            if error is None:
                command.future.set_result(result)
            else:
                code, text = int(error.get("code", 0)), str(error.get("message", error))
                command.future.set_exception(CDPError(command.method, code, text))
        self._send_released()

    def emit(self, method: str, params: dict[str, Any]) -> None:
        """Hand an event to its subscribers; one that raises is logged and does not disturb the rest."""
        for handler in tuple(self._handlers.get(method, ())):
            try:
                handler(params)
            except Exception:
                log.exception("handler of %s failed", method)

    def suspend(self, error: ConnectionLost) -> None:
        """The connection broke: fail what is pending, sent or not, and let what comes from here on wait.

        What was queued fails, too: it may be the rest of a gesture whose beginning is lost.
        """
        self._queue.held = True
        self._fail_all(error)

    async def say_again(self, method: str, params: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Send a command of the client's own past a suspended queue.

        Raises:
            BrowserFault: As :meth:`call`.
        """
        command = self._command(method, params, timeout, Priority.URGENT, original=False)
        if not command.future.done():
            self._queue.enter(command)
            self.client.write(self, command)
        return await command.future

    def resume(self) -> None:
        """The connection is there again and the state of the target restored: go on."""
        if self.closed is not None:
            return
        # Subscribers first: what waits in the queue may build on what they put right.
        self.emit(RESTORED, {})
        self._queue.held = False
        self._send_released()

    def _command(
        self,
        method: str,
        params: dict[str, Any] | None,
        timeout: float,
        priority: Priority,
        *,
        original: bool = True,
    ) -> Command:
        loop = self.client.loop
        future: asyncio.Future[dict[str, Any]] = loop.create_future()
        future.add_done_callback(_retrieve)
        if original and self.journal is not None and params:
            params = self.journal.translate(method, params)
        encoded = _encode(params) if params else ""
        id = self.client.next_id()
        command = Command(id, method, params, encoded, future, capped=self.capped, priority=priority)
        if self.closed is not None:
            future.set_exception(self.closed)
        else:
            command.timer = loop.call_later(timeout, self._expire, command, timeout)
        return command

    def _send_released(self) -> None:
        for command in self._queue.released():
            self.client.write(self, command)

    def _fail_all(self, error: BaseException) -> None:
        for waiter in tuple(self._waiters):
            if not waiter.done():
                waiter.set_exception(error)
        for command in self._queue.clear():
            self.client.forget(command.id)
            command.fail(error)

    def _expire(self, command: Command, timeout: float) -> None:
        if not command.future.done():
            command.future.set_exception(CDPTimeout(f"{command.method}: no answer in {timeout:g} s"))
