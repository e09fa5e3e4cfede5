"""A browser that is there to be used: a process of ours, or one that is elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from webgym_workers.browser.chromium import ChromiumProcess
from webgym_workers.browser.options import BrowserOptions

if TYPE_CHECKING:
    from webgym_workers.browser.cdp import CDPClient
    from webgym_workers.frames.display import Display

__all__ = ["RunningBrowser", "get_browser"]


class RunningBrowser(Protocol):
    """What both kinds have in common.

    Attributes:
        client: The DevTools connection.
        display: Its virtual display, or None.
        display_obstacle: Why it has none, or None where none was asked for.
        sandbox_obstacle: Why Chromium's sandbox is off, or None where it is on or nobody here can tell.
        version: Such as ``Chrome/156.0.8078.114``.
    """

    client: CDPClient
    display: Display | None
    display_obstacle: str | None
    sandbox_obstacle: str | None
    version: str

    @property
    def alive(self) -> bool:
        """Whether it can be used, now or when its connection is back."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether a process of it is stopped, so that it is sure to answer nothing."""
        ...

    def resident_bytes(self) -> int:
        """Memory that it takes on this machine."""
        ...

    def kill(self) -> None:
        """End it, or the connection to it, at once; :meth:`stop` is still needed for the rest."""
        ...

    async def stop(self, *, graceful: bool = True) -> None:
        """End our use of it; bounded in any state."""
        ...


async def get_browser(options: BrowserOptions) -> RunningBrowser:
    """Start a browser, or connect to the one at ``options.endpoint``.

    Raises:
        BrowserError: It cannot be started, or not be reached.
    """
    if options.endpoint is None:
        return await ChromiumProcess.launch(options)
    from webgym_workers.browser.remote import RemoteBrowser

    return await RemoteBrowser.connect(options)
