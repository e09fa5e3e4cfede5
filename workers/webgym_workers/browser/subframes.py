"""Frames that the scripts of the document around them cannot look into: of other origins, sandboxed, transformed.

Some have a process and a DevTools session of their own, the others share their tab's and are told apart by execution
contexts. Nothing here costs a page that has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webgym_workers.browser.activity import TabActivity
from webgym_workers.browser.cdp import CDPSession
from webgym_workers.browser.faults import CDPError, JavaScriptError, TargetClosed
from webgym_workers.browser.navigation import navigated_away

__all__ = ["Subframe", "Subframes"]

_MOST_OWNERS = 200
"""Frames' elements remembered at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Subframe:
    """A frame by the element that holds it.

    Attributes:
        id: Of the frame; it stays the same when the frame goes to another page.
        owner: Its element, as the protocol numbers it (``backendNodeId``).
        element: Its element, as the observer of the document around it numbers it.
        parent: The frame around it; None is the tab's document.
    """

    id: str
    owner: int
    element: int
    parent: Subframe | None


class Subframes:
    """Finds the frames of one tab and evaluates in them.

    Args:
        session: The tab's.
        prepare: Makes the session of a frame's own process ready, which waits, and lets it go on.
        timeout: Deadline of a command, seconds.
    """

    def __init__(self, session: CDPSession, prepare: Callable[[CDPSession], None], timeout: float) -> None:
        self._session = session
        self._prepare = prepare
        self._timeout = timeout
        self._targets: dict[str, tuple[CDPSession, TabActivity]] = {}
        self._contexts: dict[str, int] = {}
        self._owners: dict[int, Subframe] = {}
        self.hanging: set[str] = set()
        self.scrolling: dict[str, list[tuple[float, Subframe | None]]] = {}
        self._follow(session)

    def _follow(self, session: CDPSession) -> None:
        """Be told of frames in processes of their own below ``session``; takes effect with :meth:`announce`."""
        session.on("Target.attachedToTarget", self._on_attached)

    @staticmethod
    def announce(session: CDPSession, timeout: float) -> asyncio.Future[dict[str, Any]]:
        """Have a session tell of the frames below it that get processes of their own."""
        only = [{"type": "iframe"}, {"exclude": True}]
        tell = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True, "filter": only}
        return session.post("Target.setAutoAttach", tell, timeout=timeout)

    def _on_attached(self, params: dict[str, Any]) -> None:
        session = self._session.client.session(params["sessionId"])
        target = str(params["targetInfo"]["targetId"])
        self._targets = {id: held for id, held in self._targets.items() if held[0].closed is None}
        self._targets[target] = session, TabActivity(session, target)
        self._contexts.pop(target, None)
        self._follow(session)
        self._prepare(session)

    @property
    def sessions(self) -> list[CDPSession]:
        """Sessions of the frames that have processes of their own."""
        return [session for session, _ in self._targets.values() if session.closed is None]

    async def find(self, element: int, parent: Subframe | None) -> Subframe | None:
        """The frame that an element of the document in ``parent`` holds, by the observer's number; None if it is gone.

        Raises:
            BrowserFault: The tab, the frame around it, or the browser is gone or hangs.
        """
        found = self._owners.get(element)
        if found is not None:
            return found
        answer = await self._evaluate(parent, f"__webgym_observer.element({element})", 0.0, value=False)
        handle = answer.get("objectId")
        if handle is None:
            return None
        session = self.session_of(parent)
        node = (await session.call("DOM.describeNode", {"objectId": handle}, timeout=self._timeout))["node"]
        session.post("Runtime.releaseObject", {"objectId": handle})
        if "frameId" not in node:
            return None
        if len(self._owners) >= _MOST_OWNERS:
            self._owners.clear()
        found = Subframe(str(node["frameId"]), int(node["backendNodeId"]), element, parent)
        self._owners[element] = found
        return found

    def owned_by(self, element: int) -> Subframe | None:
        """The frame of an element that :meth:`find` has found before."""
        return self._owners.get(element)

    async def quad(self, frame: Subframe) -> list[float]:
        """Where the corners of a frame's viewport are, clockwise from its upper left: x, y and so on.

        In CSS pixels of the viewport of :meth:`root_of` the frame's parent.

        Raises:
            BrowserFault: As :meth:`find`; ``CDPError`` where the frame has no box.
        """
        answer = await self.session_of(frame.parent).call(
            "DOM.getBoxModel", {"backendNodeId": frame.owner}, timeout=self._timeout
        )
        return [float(value) for value in answer["model"]["content"]]

    def root_of(self, frame: Subframe | None) -> Subframe | None:
        """The outermost frame that shares a session with ``frame``; None is the tab's document."""
        while frame is not None and self._target(frame) is None:
            frame = frame.parent
        return frame

    def session_of(self, frame: Subframe | None) -> CDPSession:
        """The session to ask about the document in ``frame``."""
        root = self.root_of(frame)
        target = None if root is None else self._target(root)
        return self._session if target is None else target[0]

    def _target(self, frame: Subframe) -> tuple[CDPSession, TabActivity] | None:
        """Session and activity of a frame in a process of its own."""
        held = self._targets.get(frame.id)
        return held if held is not None and held[0].closed is None else None

    async def evaluate(self, frame: Subframe, expression: str, budget: float = 0.0) -> Any:
        """The JSON value of an expression in the document of a frame.

        Args:
            frame: The frame.
            expression: A JavaScript expression.
            budget: Seconds to wait for requests that the frame has in flight, where it has a process of its own.

        Raises:
            JavaScriptError: It threw.
            TargetClosed: The frame is gone, or on its way to another page.
            CDPTimeout, BrowserGone: It hangs, or the browser is gone.
        """
        held = self._target(frame)
        if held is not None and budget > 0 and not held[1].idle and not await held[1].wait_idle(budget):
            held[1].let_go()
        answer = await self._evaluate(frame, expression, budget)
        return answer.get("value")

    async def _evaluate(
        self, frame: Subframe | None, expression: str, budget: float, *, value: bool = True
    ) -> dict[str, Any]:
        ask = {"expression": expression, "returnByValue": value, "awaitPromise": value, "userGesture": True}
        for last in (False, True):
            where: dict[str, Any] = {}
            session = self.session_of(frame)
            if frame is not None and self._target(frame) is None:
                where["contextId"] = await self._context(frame, session)
            try:
                answer = await session.call("Runtime.evaluate", ask | where, timeout=budget + self._timeout)
            except CDPError as error:
                if not navigated_away(error):
                    raise
                # The frame went to another page, maybe in another process.
                if frame is not None:
                    self._contexts.pop(frame.id, None)
                if last:
                    raise TargetClosed("the frame is gone") from error
                continue
            if answer.get("exceptionDetails") is not None:
                raise JavaScriptError.of(answer["exceptionDetails"])
            result: dict[str, Any] = answer["result"]
            return result
        raise AssertionError("unreachable")

    async def _context(self, frame: Subframe, session: CDPSession) -> int:
        known = self._contexts.get(frame.id)
        if known is not None:
            return known

        def note(params: dict[str, Any]) -> None:
            context = params["context"]
            data = context.get("auxData") or {}
            if data.get("isDefault"):
                self._contexts[str(data.get("frameId"))] = int(context["id"])

        # On for a moment only: while it is, the browser also sends whatever pages write to their consoles.
        off = session.on("Runtime.executionContextCreated", note)
        try:
            told = session.post("Runtime.enable", timeout=self._timeout)
            session.post("Runtime.disable", timeout=self._timeout)
            await told
        finally:
            off()
        found = self._contexts.get(frame.id)
        if found is None:
            raise TargetClosed("the frame is gone")
        return found
