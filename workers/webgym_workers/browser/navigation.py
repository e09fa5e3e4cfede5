"""Loading of documents, told from DevTools events."""

from __future__ import annotations

import asyncio
from typing import Any

from webgym_workers.browser.cdp import CDPSession
from webgym_workers.browser.faults import CDPError, JavaScriptError

__all__ = ["LoadWatch", "navigated_away"]


def navigated_away(error: CDPError | JavaScriptError) -> bool:
    """Whether a command failed because the document it ran in was replaced."""
    if isinstance(error, JavaScriptError):
        return "not fully active" in error.text
    return error.document_replaced


class LoadWatch:
    """Documents of the main frame that were committed and loaded since the watch began, by loader id."""

    def __init__(self, session: CDPSession, frame: str) -> None:
        self._session = session
        self._frame = frame
        self._committed: list[str] = []
        self._loaded: set[str] = set()
        self._wanted = ""
        self._waiter: asyncio.Future[None] | None = None
        self._off = session.on("Page.lifecycleEvent", self._on_lifecycle)

    async def wait(self, loader: str, timeout: float) -> bool:
        """Wait for the load event of ``loader``, or of a document that took its place by script.

        Returns:
            False when ``timeout`` seconds were not enough.

        Raises:
            BrowserFault: The tab or its browser went away meanwhile.
        """
        self._wanted = loader
        if self._done:
            return True
        self._waiter = self._session.waiter()
        try:
            async with asyncio.timeout(max(0.0, timeout)):
                await self._waiter
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        """Watch no longer."""
        self._off()

    @property
    def _done(self) -> bool:
        if self._wanted in self._loaded:
            return True
        if self._wanted not in self._committed:
            return False
        later = self._committed[self._committed.index(self._wanted) + 1 :]
        return not self._loaded.isdisjoint(later)

    def _on_lifecycle(self, params: dict[str, Any]) -> None:
        if params.get("frameId") != self._frame:
            return
        if params["name"] == "commit":
            self._committed.append(params["loaderId"])
        elif params["name"] == "load":
            self._loaded.add(params["loaderId"])
            if self._waiter is not None and not self._waiter.done() and self._done:
                self._waiter.set_result(None)
