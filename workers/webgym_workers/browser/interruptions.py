"""What a page puts in the way of whoever drives it: dialogs, popups, its own crash."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from webgym_workers.browser.cdp import CDPSession
from webgym_workers.browser.faults import TargetBlocked, TargetCrashed

__all__ = ["Dialog", "Interruptions", "Popup", "guard_script"]

MAX_RECORDS = 100
"""Dialogs and popups kept per page; a page that opens them in a loop must not fill our memory."""


@dataclass(frozen=True, slots=True)
class Dialog:
    """An answered dialog; ``kind`` is ``alert``, ``confirm``, ``prompt`` or ``beforeunload``."""

    kind: str
    message: str
    url: str


@dataclass(frozen=True, slots=True)
class Popup:
    """A tab or window that the page opened and that was closed."""

    url: str


# Schemes that Chromium handles itself, or hands on without asking. Any other opens a dialog: see guard.js.
_NO_DIALOG = frozenset(
    {"about", "blob", "chrome", "chrome-error", "data", "file", "filesystem", "ftp", "http", "https"}
    | {"javascript", "mailto", "news", "snews", "view-source"}
)


@cache
def guard_script() -> str:
    """The script to install at document start: links to other programs do nothing."""
    return files(__package__).joinpath("guard.js").read_text("utf-8")


class Interruptions:
    """Answers dialogs and closes popups of one tab as they come, and writes them down.

    A dialog stops the page's script, and with it every command that waits for the page; so it is answered
    from the event itself, past the cap on commands in flight.

    Attributes:
        dialogs: The latest dialogs, oldest first.
        popups: The latest popups, oldest first.
    """

    def __init__(self, browser: CDPSession, session: CDPSession, target: str, context: str) -> None:
        self.dialogs: list[Dialog] = []
        self.popups: list[Popup] = []
        self._browser = browser
        self._session = session
        self._target = target
        self._context = context
        session.on("Page.javascriptDialogOpening", self._on_dialog)
        session.on("Page.windowOpen", self._on_window)
        session.on("Page.frameRequestedNavigation", self._on_navigation)
        self._subscriptions = [
            browser.on("Target.targetCreated", self._on_target),
            browser.on("Target.targetCrashed", self._on_crash),
        ]

    def stop(self) -> None:
        """Listen to the browser no longer; the tab is being closed."""
        for off in self._subscriptions:
            off()

    def _on_dialog(self, params: dict[str, Any]) -> None:
        kind = str(params.get("type", ""))
        self.dialogs.append(Dialog(kind, params.get("message", "")[:1000], params.get("url", "")[:1000]))
        del self.dialogs[:-MAX_RECORDS]
        answer: dict[str, Any] = {"accept": True}
        if kind == "prompt":
            answer["promptText"] = params.get("defaultPrompt", "")
        self._session.post("Page.handleJavaScriptDialog", answer)

    def _on_window(self, params: dict[str, Any]) -> None:
        self.popups.append(Popup(params.get("url", "")[:1000]))
        del self.popups[:-MAX_RECORDS]

    def _on_navigation(self, params: dict[str, Any]) -> None:
        """A script went to another program's scheme: the dialog that follows swallows all further input."""
        scheme, colon, _ = str(params.get("url", "")).partition(":")
        if colon and scheme.lower() not in _NO_DIALOG:
            self._session.close(TargetBlocked(f"the page tried to open another program ({scheme[:40]}:)"))

    def _on_target(self, params: dict[str, Any]) -> None:
        info = params["targetInfo"]
        ours = info.get("browserContextId") == self._context
        if ours and info.get("type") == "page" and info["targetId"] != self._target:
            self._browser.post("Target.closeTarget", {"targetId": info["targetId"]})

    def _on_crash(self, params: dict[str, Any]) -> None:
        if params.get("targetId") == self._target:
            self._session.close(TargetCrashed("the tab crashed"))
