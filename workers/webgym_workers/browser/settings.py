"""What every tab of a page is given before it runs anything, its popups and frames alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from webgym_workers.browser.cdp import CDPSession

__all__ = ["TabSettings", "let_go"]


@dataclass
class TabSettings:
    """Settings of a page's tabs.

    Attributes:
        viewport: Width and height, CSS pixels.
        scale: Device pixels per CSS pixel.
        locale: Language that pages see, or the browser's.
        timezone: Time zone that pages see, or the machine's.
        scripts: What runs at document start in each document, by id.
    """

    viewport: tuple[int, int]
    scale: float = 1.0
    locale: str | None = None
    timezone: str | None = None
    scripts: dict[str, str] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, Any]:
        """Parameters of ``Emulation.setDeviceMetricsOverride``."""
        width, height = self.viewport
        return {"width": width, "height": height, "deviceScaleFactor": self.scale, "mobile": False}

    def prepare(self, session: CDPSession) -> None:
        """Make the session of a tab or frame ready that waits for :func:`let_go`."""
        # It answers some of these only once it goes on, which must not wait in a queue behind them.
        session.capped = False
        post = session.post
        post("Page.enable")
        post("Network.enable")
        post("Emulation.setFocusEmulationEnabled", {"enabled": True})
        post("Page.setInterceptFileChooserDialog", {"enabled": True})
        if self.locale:
            post("Emulation.setLocaleOverride", {"locale": self.locale})
        if self.timezone:
            post("Emulation.setTimezoneOverride", {"timezoneId": self.timezone})
        for source in self.scripts.values():
            post("Page.addScriptToEvaluateOnNewDocument", {"source": source, "runImmediately": True})


def let_go(session: CDPSession) -> None:
    """Let a tab or frame go on that :meth:`TabSettings.prepare` made ready."""
    session.post("Runtime.runIfWaitingForDebugger")
    session.capped = True
