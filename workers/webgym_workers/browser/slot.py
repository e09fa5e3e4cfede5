"""One slot of a pool: a browser that is watched, and replaced when it dies, hangs, grows too large or too old."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from webgym.errors import BrowserError, ExitCode
from webgym_workers.browser.admission import Admission
from webgym_workers.browser.faults import (
    BrowserFault,
    BrowserGone,
    CDPTimeout,
    ConnectionLost,
    DisplayGone,
    JavaScriptError,
    NavigationError,
    TargetClosed,
)
from webgym_workers.browser.liveness import answers
from webgym_workers.browser.options import BrowserOptions
from webgym_workers.browser.page import Page
from webgym_workers.browser.running import RunningBrowser, get_browser
from webgym_workers.idle_cores import IdleCores

__all__ = ["Browser", "BrowserState", "age_limit_of"]

if TYPE_CHECKING:
    pass

log = logging.getLogger(__name__)

AnyPage = TypeVar("AnyPage", bound=Page)

HEALTH_SECONDS = 1.0
"""How often a browser is asked whether it still answers."""
HANG_SECONDS = 5.0
"""A browser that does not answer for this long is killed and replaced, on a machine that has nothing left one that does
not for longer (:mod:`~webgym_workers.browser.liveness`); one of which a process is stopped, at once."""
MEMORY_EXCESS = 2.0
"""A browser over its memory limit is replaced when its borrower is done with it, one over this multiple at once."""
AGE_SPREAD = 0.25
"""Part of the age limit that the slots' own limits are spread over: what started together does not end together."""
PAGE_SECONDS = 2.0
"""Deadline for dropping a page that failed; a browser that cannot is replaced."""
MAX_LAUNCH_FAILURES = 5
"""Launches that fail one after the other until the slot gives up and says why."""
MAX_BACKOFF_SECONDS = 5.0


class BrowserState(Enum):
    """What a slot is doing."""

    STARTING = "starting"
    READY = "ready"
    CLOSED = "closed"
    FAILED = "failed"


class Browser:
    """One slot of a pool: a browser that comes back when it dies.

    Attributes:
        index: Number of the slot.
        state: What it is doing.
        restarts: Why the process was replaced, and how often (``died``, ``hung``, ``memory``, ``age``, ``page``,
            ``display``).
    """

    def __init__(
        self,
        index: int,
        options: BrowserOptions,
        launching: asyncio.Semaphore,
        memory_limit: int | None = None,
        age_limit: float | None = None,
        admission: Admission | None = None,
    ) -> None:
        self.index = index
        self.options = options
        self.state = BrowserState.STARTING
        self.restarts: Counter[str] = Counter()
        self._launching = launching
        self._memory_limit = memory_limit
        self._age_limit = age_limit
        self._admission = admission
        self._process: RunningBrowser | None = None
        self._error: BrowserError | None = None
        self._ready = asyncio.Event()
        self._borrowed = asyncio.Lock()
        self._replace: str | None = None
        self._due: str | None = None
        self._wake = asyncio.Event()
        self._pages: list[Page] = []
        self._idle = IdleCores()
        self._task = asyncio.create_task(self._supervise(), name=f"browser-{index}")

    @property
    def process(self) -> RunningBrowser:
        """The process of the moment.

        Raises:
            BrowserGone: There is none; it is being replaced.
        """
        if self._process is None or not self._ready.is_set():
            raise BrowserGone("the browser is being replaced")
        return self._process

    @property
    def pages(self) -> tuple[Page, ...]:
        """Open pages, oldest first. They survive from one borrower to the next until they fail or are
        closed.
        """
        self._pages = [page for page in self._pages if not page.closed]
        return tuple(self._pages)

    async def ready(self) -> None:
        """Wait until the browser answers.

        Raises:
            BrowserError: It could not be started, several times over, or the pool was closed.
        """
        if self._process is not None and not self._process.alive:
            # Dead, and the supervisor has not come round to it yet.
            self.replace("died")
        await self._ready.wait()
        if self._error is not None:
            raise self._error

    async def new_page(
        self, *, width: int | None = None, height: int | None = None, scripts: Sequence[str] = ()
    ) -> Page:
        """A blank page in a browser context of its own.

        Args:
            width: Viewport width, CSS pixels; None is the options'.
            height: Viewport height, CSS pixels; None is the options'.
            scripts: Scripts to run at document start in each of its documents.

        Raises:
            BrowserFault: The browser failed meanwhile.
        """
        return await self.open_page(Page, width=width, height=height, scripts=scripts)

    async def open_page(
        self,
        kind: type[AnyPage],
        *,
        width: int | None = None,
        height: int | None = None,
        scripts: Sequence[str] = (),
    ) -> AnyPage:
        """As :meth:`new_page`, of a class of one's own."""
        options = self.options
        # A tab is a page to load, and a process to start.
        async with contextlib.nullcontext() if self._admission is None else self._admission.turn():
            page = await kind.open(
                self.process.client,
                width=width or options.width,
                height=height or options.height,
                device_scale_factor=options.device_scale_factor,
                timeout=options.action_timeout,
                navigation_timeout=options.navigation_timeout,
                locale=options.locale,
                timezone=options.timezone,
                windowed=self.process.display is not None,
            )
        page.admission = self._admission
        self._pages.append(page)
        if options.endpoint and options.locale:
            # A browser of our own is told when it is started.
            ask = {"userAgent": "", "acceptLanguage": options.locale}
            await page.session.call("Emulation.setUserAgentOverride", ask, timeout=options.action_timeout)
        for script in scripts:
            await page.add_script(script)
        return page

    async def close_page(self, page: Page) -> None:
        """Close a page whatever state it is in; a browser that cannot do so in time is replaced."""
        if page in self._pages:
            self._pages.remove(page)
        if not await page.close(PAGE_SECONDS):
            self.replace("page")

    def replace(self, reason: str) -> None:
        """Kill the process now and start another in the background; what is pending on it fails at once."""
        if self.state is not BrowserState.READY or self._process is None:
            return
        log.warning("browser %d is replaced: %s", self.index, reason)
        self._replace = reason
        self._ready.clear()
        self.state = BrowserState.STARTING
        self._process.kill()
        self._process.client.close(BrowserGone(f"the browser was replaced ({reason})"))
        self._wake.set()

    def resident_bytes(self) -> int:
        """Memory of the browser's processes; 0 while there are none."""
        return self._process.resident_bytes() if self._process is not None and self._ready.is_set() else 0

    async def close(self) -> None:
        """End the browser for good."""
        if self.state is BrowserState.CLOSED:
            return
        self.state = BrowserState.CLOSED
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._error = BrowserGone("the pool was closed")
        self._ready.set()

    def released(self) -> None:
        """The borrower is done: what had to wait for that is done now."""
        if self._due is not None:
            self.replace(self._due)

    async def after_fault(self, error: BaseException) -> None:
        """Put right what a fault left behind: drop the pages, or the browser where that is not enough.

        A fault of the site's (a refused page, a script error) leaves nothing behind.
        """
        if isinstance(error, BrowserGone):
            return
        if isinstance(error, DisplayGone):
            self.replace("display")
            return
        if isinstance(error, JavaScriptError | NavigationError) and not isinstance(error, TargetClosed):
            return
        if isinstance(error, BrowserFault | asyncio.CancelledError):
            for page in list(self._pages):
                if page.closed or isinstance(error, CDPTimeout):
                    await self.close_page(page)

    # The supervisor: the one place that starts and stops the process.

    async def _supervise(self) -> None:
        failures = 0
        try:
            while True:
                try:
                    async with self._launching:
                        self._process = await get_browser(self.options)
                except BrowserError as error:
                    failures += 1
                    never = failures > 1 and not self.restarts
                    if never or failures >= MAX_LAUNCH_FAILURES:
                        if never:
                            error.exit_code = ExitCode.UNAVAILABLE
                        self.state, self._error = BrowserState.FAILED, error
                        self._ready.set()
                        return
                    await asyncio.sleep(min(MAX_BACKOFF_SECONDS, 0.1 * 2**failures))
                    continue
                failures = 0
                self._replace = self._due = None
                self._wake.clear()
                self.state = BrowserState.READY
                log.info("browser %d is ready: %s", self.index, self._process.version)
                self._ready.set()
                reason = await self._watch(self._process)
                self._ready.clear()
                self.state = BrowserState.STARTING
                self.restarts[reason] += 1
                self._pages.clear()
                process, self._process = self._process, None
                await process.stop(graceful=False)
        finally:
            if self._process is not None:
                process, self._process = self._process, None
                await asyncio.shield(process.stop())

    async def _watch(self, process: RunningBrowser) -> str:
        """Return, with the reason, when the process must be replaced."""
        closed = process.client.closed
        started = time.monotonic()
        while True:
            wake = asyncio.ensure_future(self._wake.wait())
            events: set[asyncio.Future[Any]] = {closed, wake}
            try:
                await asyncio.wait(events, timeout=HEALTH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            finally:
                wake.cancel()
            self._wake.clear()
            if self._replace is not None:
                return self._replace
            if not process.alive:
                log.warning("browser %d died", self.index)
                return "died"
            if not process.client.connected:
                # A remote one that is being reached again, within a deadline of its own.
                continue
            if process.stopped:
                log.warning("browser %d: a process of it is stopped", self.index)
                process.kill()
                return "hung"
            try:
                alive = await answers(partial(_version, process), HANG_SECONDS, self._idle.look)
                if alive and process.display is not None:
                    await process.display.sync()
            except (BrowserGone, ConnectionLost):
                continue
            except DisplayGone:
                log.warning("browser %d: its display hangs", self.index)
                process.kill()
                return "display"
            except BrowserFault:
                alive = False
            if not alive:
                log.warning("browser %d hangs", self.index)
                process.kill()
                return "hung"
            over = self._over_limits(process, time.monotonic() - started)
            if over is not None and (over.at_once or not self._borrowed.locked()):
                log.info("browser %d is replaced: over its limit of %s", self.index, over.reason)
                return over.reason
            self._due = over.reason if over else None

    def _over_limits(self, process: RunningBrowser, age: float) -> _Over | None:
        if self._memory_limit is not None:
            resident = process.resident_bytes()
            if resident > self._memory_limit:
                return _Over("memory", at_once=resident > MEMORY_EXCESS * self._memory_limit)
        if self._age_limit is not None and age > self._age_limit:
            return _Over("age", at_once=False)
        return None


async def _version(process: RunningBrowser, timeout: float) -> object:
    return await process.client.browser.call("Browser.getVersion", timeout=timeout)


class _Over(NamedTuple):
    """Which limit a browser is over, and whether it can wait for the end of an episode."""

    reason: str
    at_once: bool


def age_limit_of(index: int, limit: float | None) -> float | None:
    """The age limit of one slot, seconds: some way below the common one, another for each of its neighbours."""
    if limit is None:
        return None
    return limit * (1.0 - AGE_SPREAD * (index * _GOLDEN % 1.0))


_GOLDEN = 0.6180339887498949
"""Multiples of the golden ratio's fraction lie evenly in [0, 1), however many there are."""
