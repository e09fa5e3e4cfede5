"""What a page puts in the way of whoever drives it: dialogs, file choosers, its own crash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from webgym_workers.browser.cdp import CDPSession
from webgym_workers.browser.faults import TargetBlocked, TargetCrashed

__all__ = ["MAX_RECORDS", "Dialog", "Interruptions", "guard_script"]

MAX_RECORDS = 100
"""Dialogs and popups kept per page; a page that opens them in a loop must not fill our memory."""


@dataclass(frozen=True, slots=True)
class Dialog:
    """An answered dialog; ``kind`` is ``alert``, ``confirm``, ``prompt``, ``beforeunload`` or ``file``."""

    kind: str
    message: str
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
    """Answers the dialogs of one page's tabs as they come, and writes them down.

    A dialog stops the page's script, and with it every command that waits for the page; so it is answered
    from the event itself, past the cap on commands in flight.

    Attributes:
        dialogs: The latest dialogs, oldest first.
    """

    def __init__(self, browser: CDPSession) -> None:
        self.dialogs: list[Dialog] = []
        self._browser = browser
        self._offs: list[Callable[[], None]] = [browser.on("Target.targetCrashed", self._on_crash)]
        self._sessions: dict[str, CDPSession] = {}

    def watch(self, session: CDPSession, target: str) -> None:
        """Answer what a tab asks from now on."""
        self._sessions = {id: other for id, other in self._sessions.items() if other.closed is None}
        self._sessions[target] = session
        session.on("Page.javascriptDialogOpening", lambda params: self._on_dialog(session, params))
        session.on("Page.fileChooserOpened", self._on_file)
        session.on("Page.frameRequestedNavigation", lambda params: _on_navigation(session, params))

    def watch_frame(self, session: CDPSession) -> None:
        """The same for a frame in a process of its own, whose dialogs are its tab's."""
        session.on("Page.fileChooserOpened", self._on_file)

    def stop(self) -> None:
        """Listen to the browser no longer; the tabs are being closed."""
        for off in self._offs:
            off()

    def _on_dialog(self, session: CDPSession, params: dict[str, Any]) -> None:
        kind = str(params.get("type", ""))
        self._note(Dialog(kind, params.get("message", "")[:1000], params.get("url", "")[:1000]))
        answer: dict[str, Any] = {"accept": True}
        if kind == "prompt":
            answer["promptText"] = params.get("defaultPrompt", "")
        session.post("Page.handleJavaScriptDialog", answer)

    def _on_file(self, params: dict[str, Any]) -> None:
        # The browser shows none, because it was told that we do: nothing is chosen.
        self._note(Dialog("file", str(params.get("mode", "")), ""))

    def _note(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog)
        del self.dialogs[:-MAX_RECORDS]

    def _on_crash(self, params: dict[str, Any]) -> None:
        session = self._sessions.get(params.get("targetId", ""))
        if session is not None:
            session.close(TargetCrashed("the tab crashed"))


def _on_navigation(session: CDPSession, params: dict[str, Any]) -> None:
    """A script went to another program's scheme: the dialog that follows swallows all further input."""
    scheme, colon, _ = str(params.get("url", "")).partition(":")
    if colon and scheme.lower() not in _NO_DIALOG:
        session.close(TargetBlocked(f"the page tried to open another program ({scheme[:40]}:)"))
