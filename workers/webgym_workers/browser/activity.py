"""What a tab has in flight: network requests and navigations, told from DevTools events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from webgym_workers.browser.session import RESTORED, CDPSession

__all__ = ["TabActivity"]

# Connections that are open for good by design, and messages that nobody waits for.
_ENDLESS = frozenset({"EventSource", "WebSocket", "Ping", "CSPViolationReport", "Prefetch"})


class TabActivity:
    """Counts what a page waits for.

    Chromium sends these events on the tab's session in order with its answers: when the answer to an
    evaluation is read, every request that the page started before it is already counted.

    Attributes:
        frame: Id of the main frame.
        background: Requests that outlived a budget and are no longer waited for.
    """

    def __init__(self, session: CDPSession, frame: str) -> None:
        self.frame = frame
        self.background: set[str] = set()
        # Loader and frame of each.
        self._requests: dict[str, tuple[str, str]] = {}
        self._loading: set[str] = set()
        self._requested = False
        self._uncommitted = False
        self._session = session
        self._waiters: dict[asyncio.Future[None], Callable[[], bool]] = {}
        for method, handler in {
            "Network.requestWillBeSent": self._on_request,
            "Network.loadingFinished": self._on_done,
            "Network.loadingFailed": self._on_done,
            "Page.frameRequestedNavigation": self._on_navigation_requested,
            "Page.frameStartedLoading": self._on_started,
            "Page.frameStoppedLoading": self._on_stopped,
            "Page.frameDetached": self._on_detached,
            "Page.frameNavigated": self._on_navigated,
            "Page.navigatedWithinDocument": self._on_same_document,
            RESTORED: self._on_restored,
        }.items():
            session.on(method, handler)

    @property
    def requests(self) -> int:
        """Network requests in flight, those in the background left out."""
        return len(self._requests.keys() - self.background) if self._requests else 0

    @property
    def idle(self) -> bool:
        """Nothing is loading and no request is in flight."""
        return not self._loading and not self._requested and not self.requests

    @property
    def committed(self) -> bool:
        """No navigation of the tab waits for its first answer. Chromium holds back evaluations while one does."""
        return not self._uncommitted

    async def wait_idle(self, timeout: float) -> bool:
        """Wait until nothing is in flight; False when ``timeout`` seconds were not enough.

        Raises:
            BrowserFault: The tab or its browser went away meanwhile.
        """
        return await self._wait(lambda: self.idle, timeout)

    async def wait_committed(self, timeout: float) -> bool:
        """Wait for :attr:`committed`; as :meth:`wait_idle`."""
        return await self._wait(lambda: self.committed, timeout)

    async def _wait(self, condition: Callable[[], bool], timeout: float) -> bool:
        if condition():
            return True
        future = self._session.waiter()
        self._waiters[future] = condition
        try:
            async with asyncio.timeout(max(0.0, timeout)):
                await future
        except TimeoutError:
            return False
        finally:
            del self._waiters[future]
        return True

    def expect_navigation(self) -> None:
        """A navigation was asked for of which no event has come yet."""
        self._requested = True

    def let_go(self) -> int:
        """Stop waiting for what is in flight now; returns how many requests that were."""
        count = self.requests
        self.background.update(self._requests)
        self._requested = self._uncommitted = False
        self._loading.clear()
        self._check()
        return count

    def _check(self) -> None:
        for future, condition in self._waiters.items():
            if not future.done() and condition():
                future.set_result(None)

    def _on_request(self, params: dict[str, Any]) -> None:
        if params.get("type") not in _ENDLESS:
            self._requests[params["requestId"]] = params.get("loaderId", ""), params.get("frameId", "")

    def _on_done(self, params: dict[str, Any]) -> None:
        if self._requests.pop(params["requestId"], None) is not None:
            self.background.discard(params["requestId"])
            self._check()

    def _on_navigation_requested(self, params: dict[str, Any]) -> None:
        if params.get("frameId") == self.frame and params.get("disposition", "currentTab") == "currentTab":
            self._requested = True

    def _on_started(self, params: dict[str, Any]) -> None:
        self._loading.add(params["frameId"])
        if params["frameId"] == self.frame:
            self._requested = False
            self._uncommitted = True

    def _on_stopped(self, params: dict[str, Any]) -> None:
        self._loading.discard(params["frameId"])
        if params["frameId"] == self.frame:
            self._requested = self._uncommitted = False
        self._check()

    def _on_detached(self, params: dict[str, Any]) -> None:
        """A frame is gone, or goes on in another process, whose session tells the end of what it has in flight."""
        self._requests = {id: of for id, of in self._requests.items() if of[1] != params["frameId"]}
        self.background &= self._requests.keys()
        self._on_stopped(params)

    def _on_navigated(self, params: dict[str, Any]) -> None:
        frame = params["frame"]
        if frame.get("parentId") is None:
            # A new document: what the old one had in flight is gone, whether or not the browser says so.
            self.frame = frame["id"]
            loader = frame.get("loaderId", "")
            self._requests = {id: of for id, of in self._requests.items() if of[0] == loader}
            self.background &= self._requests.keys()
            self._loading &= {self.frame}
            self._requested = self._uncommitted = False
            self._check()

    def _on_same_document(self, params: dict[str, Any]) -> None:
        if params.get("frameId") == self.frame:
            self._requested = self._uncommitted = False
            self._check()

    def _on_restored(self, params: dict[str, Any]) -> None:
        # What ended while nobody could tell us would be waited for without end.
        self._requests.clear()
        self.background.clear()
        self._loading.clear()
        self._requested = self._uncommitted = False
        self._check()
