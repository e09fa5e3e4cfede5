"""Tabs as they come: each is handed, before it runs anything, to the page whose browser context it opened in.

The browser stops every new tab until it is told to go on, so that scripts are in place before a popup's own, and the
script that opened it waits as well. One watch serves all pages of a browser.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from webgym_workers.browser.cdp import CDPClient, CDPSession

__all__ = ["Arrivals", "TabHandler"]

TabHandler = Callable[[CDPSession, dict[str, Any]], None]
"""Takes the session and the ``Target.TargetInfo`` of a tab that waits for ``Runtime.runIfWaitingForDebugger``."""

_ONLY_TABS = [{"type": "page"}, {"exclude": True}]


class Arrivals:
    """Who takes the tabs of which browser context; one per browser, see :meth:`of`."""

    _all: ClassVar[WeakKeyDictionary[CDPClient, Arrivals]] = WeakKeyDictionary()

    def __init__(self, client: CDPClient) -> None:
        self._browser = client.browser
        # Not the client itself, or the table of all watches would keep it alive.
        self._session = client.session
        self._handlers: dict[str, TabHandler] = {}
        self._started = False
        client.browser.on("Target.attachedToTarget", self._on_attached)

    @classmethod
    def of(cls, client: CDPClient) -> Arrivals:
        """The browser's."""
        found = cls._all.get(client)
        if found is None:
            found = cls._all[client] = cls(client)
        return found

    async def start(self, timeout: float) -> None:
        """Have the browser tell of new tabs. Harmless twice.

        Raises:
            BrowserFault: The browser failed meanwhile.
        """
        if not self._started:
            tell = {
                "autoAttach": True,
                "waitForDebuggerOnStart": True,
                "flatten": True,
                "filter": _ONLY_TABS,
            }
            await self._browser.call("Target.setAutoAttach", tell, timeout=timeout)
            self._started = True

    def take(self, context: str, handler: TabHandler) -> Callable[[], None]:
        """Hand every tab that opens in ``context`` to ``handler``; returns what ends it."""
        self._handlers[context] = handler
        return lambda: self._handlers.pop(context, None) and None

    def _on_attached(self, params: dict[str, Any]) -> None:
        # A tab that does not wait was there before, or somebody else attached to it.
        if not params.get("waitingForDebugger"):
            return
        info = params["targetInfo"]
        session = self._session(params["sessionId"])
        handler = self._handlers.get(info.get("browserContextId", ""))
        if handler is not None:
            handler(session, info)
        else:
            session.post("Runtime.runIfWaitingForDebugger")
            self._browser.post("Target.detachFromTarget", {"sessionId": session.id})
