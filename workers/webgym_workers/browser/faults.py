"""What goes wrong with a browser in mid-run, as types: what failed, and whose fault it is likely to be.

None of these ends a run. A fault costs the episode it hit; its :attr:`BrowserFault.blame` goes into the
run's summary.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from webgym.errors import BrowserError

__all__ = [
    "Blame",
    "BrowserFault",
    "BrowserGone",
    "CDPError",
    "CDPTimeout",
    "ConnectionLost",
    "DisplayGone",
    "EgressGone",
    "ElementFault",
    "JavaScriptError",
    "NavigationError",
    "TargetBlocked",
    "TargetClosed",
    "TargetCrashed",
]

Blame = Literal["site", "browser", "agent"]


class BrowserFault(BrowserError):
    """A browser, a tab or a page failed while it was in use."""

    blame: Blame = "browser"


class BrowserGone(BrowserFault):
    """The browser process ended or its pipe broke; every call in flight fails with this at once."""


class ConnectionLost(BrowserFault):
    """The connection to a remote browser broke while the call was pending; whether it was carried out is not known.

    The connection is being brought back: later calls wait for it.
    """


class DisplayGone(BrowserFault):
    """The browser's virtual display ended, hangs, or shows something other than the page; the browser goes with it."""


class EgressGone(BrowserFault):
    """The browsers' own proxy does not answer: pages reach nothing until it is open again, which it soon is."""


class TargetClosed(BrowserFault):
    """The tab was closed or detached; it takes no further commands."""


class TargetCrashed(TargetClosed):
    """The tab's renderer process died."""

    blame: Blame = "site"


class TargetBlocked(TargetClosed):
    """The tab shows a dialog of the browser's own that nothing but a person can close; it takes no more input."""

    blame: Blame = "site"


class CDPTimeout(BrowserFault):
    """A command got no answer within its deadline: the page runs an endless loop, or the browser hangs."""

    blame: Blame = "site"


# Ways in which Chromium says that the document went away under a command.
_DOCUMENT_REPLACED = (
    "context was destroyed",
    "Cannot find context",
    "Cannot find default execution context",
    "navigated or closed",
    "uniqueContextId not found",
)


class CDPError(BrowserFault):
    """The browser refused a command.

    Attributes:
        method: The command.
        code: JSON-RPC error code of the DevTools protocol (such as -32000).
        message: What the browser said.
    """

    def __init__(self, method: str, code: int, message: str) -> None:
        super().__init__(f"{method}: {message} ({code})")
        self.method = method
        self.code = code
        self.message = message

    @property
    def document_replaced(self) -> bool:
        """Whether it failed because the document it ran in went away."""
        return any(words in self.message for words in _DOCUMENT_REPLACED)


class JavaScriptError(BrowserFault):
    """A script that we evaluated threw.

    Attributes:
        text: The exception's description with its stack, at most 2,000 characters.
    """

    blame: Blame = "site"

    def __init__(self, text: str) -> None:
        super().__init__(text.split("\n", 1)[0])
        self.text = text[:2000]

    @classmethod
    def of(cls, details: dict[str, Any]) -> Self:
        """From the protocol's ``Runtime.ExceptionDetails``."""
        exception = details.get("exception") or {}
        return cls(str(exception.get("description") or exception.get("value") or details.get("text")))


class NavigationError(BrowserFault):
    """A page did not load.

    Attributes:
        url: Where the page was sent.
        reason: Chromium's name for it (such as ``net::ERR_NAME_NOT_RESOLVED``), or ``timeout``.
    """

    blame: Blame = "site"

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"cannot load {url[:200]}: {reason}")
        self.url = url
        self.reason = reason


class ElementFault(BrowserFault):
    """An element cannot be acted on: it is gone, covered by another one, or is not what the action needs.

    Nothing was done to the page, but for the click into a field that then takes no text.

    Attributes:
        reason: Why, such as ``gone``, ``covered``, ``unfocusable``, ``no such option``, ``not found``.
    """

    blame: Blame = "agent"

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.reason = reason
