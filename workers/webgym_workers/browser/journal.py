"""What was said to a target and holds until the connection ends: it has to be said again after a reconnect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

__all__ = ["ADD_SCRIPT", "SessionJournal"]

ADD_SCRIPT = "Page.addScriptToEvaluateOnNewDocument"
_REMOVE_SCRIPT = "Page.removeScriptToEvaluateOnNewDocument"
_CREATE_CONTEXT = "Target.createBrowserContext"
_DISPOSE_CONTEXT = "Target.disposeBrowserContext"

_LASTING = re.compile(
    r"""Emulation\.set\w+
    | Page\.set(LifecycleEventsEnabled|InterceptFileChooserDialog|BypassCSP|AdBlockingEnabled|FontFamilies|FontSizes)
    | Network\.(set(CacheDisabled|ExtraHTTPHeaders|UserAgentOverride|BypassServiceWorker|BlockedURLs)
        |emulateNetworkConditions)
    | Security\.setIgnoreCertificateErrors
    | Target\.(setDiscoverTargets|setAutoAttach)
    """,
    re.VERBOSE,
)
"""Settings of which the last one counts. What changes the page itself, such as a cookie, outlives the connection."""


class SessionJournal:
    """Domains, settings and scripts of one session, in the order in which they came into force.

    Attributes:
        contexts: Browser contexts that were made and not disposed of (of the browser's own session).
        document: Loader id of the document that is there; None before the first navigation.
    """

    def __init__(self) -> None:
        self.contexts: set[str] = set()
        self.document: str | None = None
        self._said: dict[str, tuple[str, dict[str, Any]]] = {}
        self._scripts: dict[str, str] = {}

    def note(self, method: str, params: dict[str, Any], result: dict[str, Any]) -> None:
        """A command was carried out."""
        domain, _, verb = method.partition(".")
        if method == ADD_SCRIPT:
            id = str(result.get("identifier"))
            self._said[f"script {id}"] = method, params
            self._scripts[id] = id
        elif method == _REMOVE_SCRIPT:
            now = str(params.get("identifier"))
            for ours in [ours for ours, theirs in self._scripts.items() if theirs == now]:
                del self._scripts[ours]
                self._said.pop(f"script {ours}", None)
        elif verb == "enable":
            self._keep(f"{domain} enabled", method, params)
        elif verb == "disable":
            self._said.pop(f"{domain} enabled", None)
        elif method == "Browser.setDownloadBehavior":
            self._keep(f"downloads {params.get('browserContextId', '')}", method, params)
        elif method in ("Runtime.addBinding", "Runtime.removeBinding"):
            key = f"binding {params.get('name')}"
            if verb == "addBinding":
                self._keep(key, method, params)
            else:
                self._said.pop(key, None)
        elif method == _CREATE_CONTEXT:
            self.contexts.add(str(result.get("browserContextId")))
        elif method == _DISPOSE_CONTEXT:
            context = str(params.get("browserContextId"))
            self.contexts.discard(context)
            self._said.pop(f"downloads {context}", None)
        elif _LASTING.fullmatch(method):
            self._keep(method, method, params)
        elif verb.startswith("clear") and domain == "Emulation":
            self._said.pop(f"Emulation.set{verb.removeprefix('clear')}", None)

    def navigated(self, params: dict[str, Any]) -> None:
        """Take a ``Page.frameNavigated`` event."""
        frame = params["frame"]
        if frame.get("parentId") is None:
            self.document = str(frame.get("loaderId", ""))

    def to_say(self, *, rerun: bool) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """What to say again: key, method and parameters, in order.

        Args:
            rerun: Whether scripts that ran at once in the document that was there do so again: it is another document.
        """
        for key, (method, params) in list(self._said.items()):
            if method == ADD_SCRIPT and params.get("runImmediately"):
                yield key, method, {**params, "runImmediately": rerun}
            else:
                yield key, method, params

    def said(self, key: str, result: dict[str, Any]) -> None:
        """It was said again; the browser gives scripts other ids than the caller knows."""
        kind, _, id = key.partition(" ")
        if kind == "script":
            self._scripts[id] = str(result.get("identifier"))

    def translate(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a command with the ids that the browser knows now."""
        if method != _REMOVE_SCRIPT:
            return params
        id = str(params.get("identifier"))
        return {**params, "identifier": self._scripts.get(id, id)}

    def _keep(self, key: str, method: str, params: dict[str, Any]) -> None:
        # Taken out first: what was said last comes last.
        self._said.pop(key, None)
        self._said[key] = method, params
