"""The tabs of a page: its own, and those that its documents opened, of which the newest is the one in use."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from webgym_workers.browser.cdp import CDPSession
from webgym_workers.browser.faults import BrowserFault, TargetClosed
from webgym_workers.browser.interruptions import MAX_RECORDS
from webgym_workers.browser.tab import Tab

__all__ = ["MAX_POPUPS", "Popup", "Tabs"]

MAX_POPUPS = 4
"""Popups of a page that are open at a time; more are closed as they come."""
ARRIVAL_SECONDS = 2.0
"""How long a popup that was announced is waited for."""


@dataclass(frozen=True, slots=True)
class Popup:
    """A tab or window that the page opened.

    Attributes:
        url: Where it was sent.
        followed: Whether it was an action's doing and became the tab in use; otherwise it was closed at once.
    """

    url: str
    followed: bool = False


class Tabs:
    """The stack of a page's tabs. The last one is in use; what is below it has opened it.

    A popup that opens between an action and the reading after it is followed. One that opens at any other time, or is
    one too many, is closed and written down.

    Args:
        browser: The browser's session.
        make: Makes the tab of a session that waits, and lets it go on.

    Attributes:
        popups: The latest popups, oldest first.
    """

    def __init__(self, browser: CDPSession, make: Callable[[CDPSession, dict[str, Any]], Tab]) -> None:
        self.popups: list[Popup] = []
        self._browser = browser
        self._make = make
        self._stack: list[Tab] = []
        self._following = False
        self._announced: list[str] = []
        self._arrived = asyncio.Event()
        self._closing: set[str] = set()
        self._off = browser.on("Target.targetDestroyed", self._on_destroyed)

    @property
    def first(self) -> Tab:
        """The page's own."""
        return self._stack[0]

    @property
    def current(self) -> Tab:
        """The one in use: the newest that is not closed."""
        stack = self._stack
        while len(stack) > 1 and type(stack[-1].session.closed) is TargetClosed:
            stack.pop()
        return stack[-1]

    @property
    def depth(self) -> int:
        """How many popups are open above the page's own tab, the one in use included."""
        return self._stack.index(self.current)

    @property
    def closing(self) -> bool:
        """Whether a tab that was closed is still there: its window may lie over the page's."""
        return bool(self._closing)

    def stop(self) -> None:
        """Listen to the browser no longer."""
        self._off()

    def __iter__(self) -> Iterator[Tab]:
        """All tabs, the page's own first."""
        return iter(tuple(self._stack))

    def expect(self) -> None:
        """Follow what opens from here until :meth:`settle_down`."""
        self._following = True

    def settle_down(self) -> None:
        """What opens from here on is no action's doing."""
        self._following = False

    @property
    def arriving(self) -> bool:
        """Whether a popup was announced that has not come yet."""
        return bool(self._announced)

    async def arrive(self, timeout: float) -> None:
        """Wait for the popups that were announced, no longer than ``timeout`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._announced and self.current.session.closed is None:
                    self._arrived.clear()
                    await self._arrived.wait()
        for url in self._announced:
            self._record(url, followed=False)
        self._announced.clear()

    def watch(self, session: CDPSession) -> None:
        """Hear of what the documents of a session open."""
        session.on("Page.windowOpen", self._on_window)

    async def open_first(self, timeout: float) -> Tab:
        """The page's own tab, once it has come.

        Raises:
            BrowserFault: The browser failed meanwhile, or the tab did not come in ``timeout`` seconds.
        """
        gone = self._browser.waiter()
        came = asyncio.ensure_future(self._arrived.wait())
        try:
            events: set[asyncio.Future[Any]] = {gone, came}
            await asyncio.wait(events, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                gone.result()
            if not self._stack:
                raise BrowserFault(f"a new tab did not show up in {timeout:g} s")
        finally:
            came.cancel()
            gone.cancel()
        return self.first

    def close_popups(self) -> None:
        """Close all but the page's own tab, without waiting for it."""
        self.settle_down()
        for tab in self._stack[1:]:
            self._close(tab.target)
            tab.session.close(TargetClosed("the popup was closed"))
        del self._stack[1:]

    async def leave(self, timeout: float) -> bool:
        """Close the popup in use, so that what opened it is in use again; False when there is none.

        Raises:
            BrowserFault: The browser failed meanwhile, or hangs.
        """
        tab = self.current
        if tab is self.first:
            return False
        self._closing.add(tab.target)
        await self._browser.call("Target.closeTarget", {"targetId": tab.target}, timeout=timeout)
        tab.session.close(TargetClosed("the popup was closed"))
        return True

    def take(self, session: CDPSession, info: dict[str, Any]) -> None:
        """A tab has come, and waits."""
        if not self._stack:
            self._stack.append(self._make(session, info))
        else:
            follow = self._following and len(self._stack) <= MAX_POPUPS
            url = self._announced.pop(0) if self._announced else str(info.get("url", ""))
            self._record(url, followed=follow)
            if follow:
                self._stack.append(self._make(session, info | {"url": url}))
            else:
                # The script that opened it waits until it goes on, closed or not.
                session.post("Runtime.runIfWaitingForDebugger")
                self._close(info["targetId"])
        self._arrived.set()

    def _record(self, url: str, *, followed: bool) -> None:
        self.popups.append(Popup(url[:1000], followed))
        del self.popups[:-MAX_RECORDS]

    def _on_window(self, params: dict[str, Any]) -> None:
        self._announced.append(str(params.get("url", "")))
        del self._announced[:-MAX_RECORDS]

    def _on_destroyed(self, params: dict[str, Any]) -> None:
        self._closing.discard(params.get("targetId", ""))

    def _close(self, target: str) -> None:
        self._closing.add(target)
        self._browser.post("Target.closeTarget", {"targetId": target})
