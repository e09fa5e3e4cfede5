"""The Chrome DevTools Protocol: one :class:`CDPClient` per connection to a browser, sessions for its targets.

The client routes answers to commands and events to sessions (flat mode). Messages come and go over a transport, the
debugging pipe (:mod:`~webgym_workers.browser.pipe`) or a websocket (:mod:`~webgym_workers.browser.websocket`). All of
it runs on one event loop; no method blocks.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from webgym_workers.browser.command import BYPASS, DEFAULT_TIMEOUT, MAX_IN_FLIGHT, Command, Priority
from webgym_workers.browser.faults import (
    BrowserGone,
    ConnectionLost,
    TargetClosed,
    TargetCrashed,
)
from webgym_workers.browser.journal import SessionJournal
from webgym_workers.browser.session import RESTORED, CDPSession, EventHandler
from webgym_workers.browser.transport import Transport

__all__ = [
    "BYPASS",
    "DEFAULT_TIMEOUT",
    "MAX_IN_FLIGHT",
    "RESTORED",
    "CDPClient",
    "CDPSession",
    "EventHandler",
    "Priority",
]

log = logging.getLogger(__name__)


class CDPClient:
    """The connection to one browser.

    Args:
        loop: The event loop that all of it runs on.
        recover: Called when the connection breaks, to bring it back; None is a browser that cannot be reached again
            when it is lost once.

    Attributes:
        browser: The session of the browser itself (no cap).
        gone: Why the connection ended for good, or None while it is alive.
        closed: Done when it has ended for good.
        pending: Commands that the browser has not answered yet, and their sessions, by id.
        connected: Whether there is a connection now.
        targets: Ids of the tabs that sessions belong to, by session id.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, recover: Callable[[CDPClient, str], None] | None = None
    ) -> None:
        self.loop = loop
        self.gone: BaseException | None = None
        self.closed: asyncio.Future[None] = loop.create_future()
        self.pending: dict[int, tuple[CDPSession, Command]] = {}
        self.connected = False
        self.targets: dict[str, str] = {}
        self._recover = recover
        self._sessions: dict[str, CDPSession] = {}
        self._last_id = 0
        self._transport: Transport | None = None
        self.browser = CDPSession(self, None, capped=False, journal=self._journal())
        self.browser.on("Target.detachedFromTarget", self._on_detached)
        self.browser.on("Target.attachedToTarget", self._on_attached)

    @property
    def recovers(self) -> bool:
        """Whether a broken connection comes back: then what was made over it must not end with it."""
        return self._recover is not None

    @property
    def sessions(self) -> tuple[CDPSession, ...]:
        """Those of targets that are open."""
        return tuple(self._sessions.values())

    def use(self, transport: Transport) -> None:
        """Send over this transport from here on."""
        self._transport = transport
        self.connected = True

    def session(self, id: str) -> CDPSession:
        """The session of this id, made on first use."""
        session = self._sessions.get(id)
        if session is None:
            session = self._sessions[id] = CDPSession(self, id, journal=self._journal())
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
        self.connected = False
        if self._transport is not None:
            self._transport.abort()
        for session in (self.browser, *self._sessions.values()):
            session.close(self.gone)
        self._sessions.clear()
        if not self.closed.done():
            self.closed.set_result(None)

    # A connection that comes back.

    def suspend(self, why: str) -> None:
        """There is no connection for the time being: what is pending fails, what comes waits."""
        self.connected = False
        self.browser.suspend(ConnectionLost(why))
        for id, session in list(self._sessions.items()):
            if id in self.targets:
                session.suspend(ConnectionLost(why))
            else:
                # Its tab's session gets another one for it.
                del self._sessions[id]
                session.close(TargetClosed(f"the frame's session ended: {why}"))

    def reattach(self, session: CDPSession, id: str, target: str) -> None:
        """A session of a tab goes on under another id."""
        for old in [known for known, other in self._sessions.items() if other is session]:
            del self._sessions[old]
            self.targets.pop(old, None)
        session.id = id
        self._sessions[id] = session
        self.targets[id] = target

    def drop(self, session: CDPSession, error: BaseException) -> None:
        """The target of a session is not there any more."""
        if session.id is not None:
            self._sessions.pop(session.id, None)
            self.targets.pop(session.id, None)
        session.close(error)

    # What sessions use.

    def next_id(self) -> int:
        """A fresh message id."""
        self._last_id += 1
        return self._last_id

    def write(self, session: CDPSession, command: Command) -> None:
        """Send a command; its answer will be routed back to its session."""
        self.pending[command.id] = session, command
        transport = self._transport
        if transport is None or transport.closing:
            if transport is not None:
                self.lost(transport, "the browser's connection is closed")
            return
        tail = f',"params":{command.encoded}}}' if command.encoded else "}"
        whose = f',"sessionId":"{session.id}"' if session.id is not None else ""
        transport.write(f'{{"id":{command.id},"method":"{command.method}"{whose}{tail}')

    def forget(self, id: int) -> None:
        """Ignore the answer to this command, should it come."""
        self.pending.pop(id, None)

    # What transports use.

    def received(self, message: str) -> None:
        """Route one message."""
        try:
            content = json.loads(message)
        except ValueError:
            log.warning("not JSON from the browser: %r", message[:200])
            return
        id = content.get("id")
        if id is not None:
            asked = self.pending.pop(id, None)
            if asked is not None:
                session, command = asked
                session.settle(command, content)
            return
        session_id = content.get("sessionId")
        told = self.browser if session_id is None else self._sessions.get(session_id)
        if told is not None:
            told.emit(content["method"], content.get("params") or {})

    def lost(self, transport: Transport, why: str) -> None:
        """A transport's connection has ended."""
        if transport is not self._transport or self.gone is not None:
            return
        if self._recover is None:
            self.close(BrowserGone(why))
            return
        self._transport = None
        transport.abort()
        self.suspend(why)
        self._recover(self, why)

    def _journal(self) -> SessionJournal | None:
        return SessionJournal() if self._recover is not None else None

    def _on_attached(self, params: dict[str, Any]) -> None:
        self.targets[str(params["sessionId"])] = str(params["targetInfo"]["targetId"])

    def _on_detached(self, params: dict[str, Any]) -> None:
        self.targets.pop(params["sessionId"], None)
        session = self._sessions.pop(params["sessionId"], None)
        if session is not None:
            session.close(TargetClosed("the tab was closed"))
