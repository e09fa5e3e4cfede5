"""A browser that is elsewhere, reached over a websocket. It is used, not started, and not ended."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from webgym.errors import BrowserError
from webgym_workers.browser.cdp import CDPClient
from webgym_workers.browser.faults import BrowserFault
from webgym_workers.browser.options import BrowserOptions
from webgym_workers.browser.reconnect import PATIENCE_SECONDS, Reconnection
from webgym_workers.browser.transport import Receiver, Transport
from webgym_workers.browser.websocket import dial, place_of

if TYPE_CHECKING:
    from webgym_workers.frames.display import Display

__all__ = ["RemoteBrowser"]

CONNECT_SECONDS = 10.0
"""Deadline of a connection, from its first packet to the browser's first answer."""
STOP_SECONDS = 3.0


class RemoteBrowser:
    """A connection to a browser; made by :meth:`connect`.

    When the connection breaks it is made again, and callers keep their sessions: see
    :class:`~webgym_workers.browser.reconnect.Reconnection`.

    Attributes:
        client: The DevTools connection.
        display: None: its screen is out of reach.
        display_obstacle: What there is to say of that.
        sandbox_obstacle: None: whoever started it knows.
        version: Such as ``Chrome/156.0.8078.114``.
    """

    def __init__(self, client: CDPClient, reconnection: Reconnection, place: str) -> None:
        self.client = client
        self.display: Display | None = None
        self.display_obstacle: str | None = f"the browser is elsewhere, at {place}"
        self.sandbox_obstacle: str | None = None
        self.version = ""
        self._reconnection = reconnection

    @classmethod
    async def connect(cls, options: BrowserOptions, *, patience: float = PATIENCE_SECONDS) -> RemoteBrowser:
        """Connect to the browser at ``options.endpoint`` and wait until it answers.

        Args:
            options: How the browser is used.
            patience: Seconds that it may be out of reach, later on, until it counts as gone.

        Raises:
            BrowserError: It cannot be reached, or the options ask for what only a local browser can give.
        """
        endpoint = options.endpoint
        if endpoint is None:
            raise BrowserError("browser.endpoint is not set: there is no remote browser to connect to")
        place = place_of(endpoint)
        if options.display == "Require":
            raise BrowserError(
                f"frames from shared memory are required, but the browser is elsewhere, at {place}: "
                "set browser.frames to Auto, or leave browser.endpoint out"
            )
        if options.egress != "Public":
            raise BrowserError(
                f"browser.egress: {options.egress} is kept by a proxy of this machine, but the browser is elsewhere, "
                f"at {place}: set browser.egress to Public, or leave browser.endpoint out"
            )

        async def connect(receiver: Receiver) -> Transport:
            return await dial(receiver, endpoint, CONNECT_SECONDS)

        reconnection = Reconnection(place, connect, patience)
        client = CDPClient(asyncio.get_running_loop(), recover=reconnection.begin)
        browser = cls(client, reconnection, place)
        try:
            client.use(await connect(client))
            answer = await client.browser.call("Browser.getVersion", timeout=CONNECT_SECONDS)
            browser.version = str(answer.get("product", ""))
            await client.browser.call(
                "Target.setDiscoverTargets", {"discover": True}, timeout=CONNECT_SECONDS
            )
        except BrowserFault as error:
            browser.kill()
            raise BrowserError(f"cannot use the browser at {place}: {error}") from error
        except BaseException:
            browser.kill()
            raise
        return browser

    @property
    def alive(self) -> bool:
        """Whether there is a connection, or one that is being brought back."""
        return self.client.gone is None

    @property
    def reconnects(self) -> int:
        """How often the connection broke and came back."""
        return self._reconnection.count

    @property
    def stopped(self) -> bool:
        """False: its processes are another machine's."""
        return False

    def resident_bytes(self) -> int:
        """0: its memory is another machine's."""
        return 0

    def kill(self) -> None:
        """Drop the connection at once."""
        self._reconnection.stop()
        self.client.close()

    async def stop(self, *, graceful: bool = True) -> None:
        """Close the tabs that were opened over this connection, and drop it. The browser stays."""
        browser = self.client.browser
        journal = browser.journal
        if self.client.connected and journal is not None:
            contexts = [
                browser.post("Target.disposeBrowserContext", {"browserContextId": id}, timeout=STOP_SECONDS)
                for id in journal.contexts
            ]
            if contexts and graceful:
                await asyncio.wait(contexts)
            elif contexts:
                # Also one that seems hung may come round to it, if it is told.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait(contexts, timeout=0.1)
        self.kill()
